"""`Ring` holds what was added last, draws with the generator it is handed, and comes back as it was."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import ContractError, UnknownObjectError, UsageError

COLUMNS = {"observation": (np.float32, (3,)), "action": np.int64, "done": np.bool_}


def filled(ring: perdure.Ring, number: int, seed: int = 0) -> perdure.Ring:
    """The ring with so many rows added."""
    rng = np.random.default_rng(seed)
    axes = (number,) if ring.num_envs is None else (number, ring.num_envs)
    ring.extend(observation=rng.normal(size=(*axes, 3)), action=rng.integers(9, size=axes), done=rng.random(axes) < 0.1)
    return ring


def content(ring: perdure.Ring) -> dict[str, Any]:
    """What it holds, oldest first."""
    slots = np.arange(ring.start, ring.total) % ring.capacity
    return {name: column[slots].tobytes() for name, column in ring.columns.items()} | {"total": ring.total}


@settings(max_examples=50, deadline=None)
@given(capacity=st.integers(1, 9), sizes=st.lists(st.integers(0, 25), max_size=6), envs=st.sampled_from([None, 1, 3]))
def test_adding_one_by_one_and_many_at_once_are_the_same(capacity: int, sizes: list[int], envs: int | None):
    """And both leave the last rows, in order, each at its index."""
    one, many = (perdure.Ring(capacity, {"x": np.int64}, num_envs=envs) for _ in range(2))
    values = np.arange(sum(sizes)) if envs is None else np.arange(sum(sizes) * envs).reshape(-1, envs)
    begin = 0
    for size in sizes:
        many.extend(x=values[begin : begin + size])
        begin += size
    for index, value in enumerate(values):
        assert one.add(x=value) == index % capacity
    assert content(one) == content(many)
    assert len(one) == min(capacity, sum(sizes)) * (envs or 1)
    assert content(one)["x"] == values[-capacity:].tobytes()
    assert one.cursor == sum(sizes) % capacity


def test_samples_are_the_generators_and_copies():
    """The same generator draws the same batch, each transition of each environment can come, none beyond the ring."""
    ring = filled(perdure.Ring(10, COLUMNS, num_envs=2), 4)
    batch, again = (ring.sample(np.random.default_rng(3), 400) for _ in range(2))
    assert {name: part.tobytes() for name, part in batch.items()} == {n: p.tobytes() for n, p in again.items()}
    assert {tuple(row) for row in batch["observation"]} == {
        tuple(row) for row in ring.columns["observation"][:4].reshape(-1, 3)
    }
    assert batch["action"].shape == (400,)
    before = content(ring)
    batch["observation"][:] = 7
    assert content(ring) == before


def test_columns_cannot_be_written_to():
    """An edit that the ring does not know of would be in no checkpoint."""
    ring = filled(perdure.Ring(10, COLUMNS), 4)
    with pytest.raises(ValueError, match="read-only"):
        ring.columns["action"][0] = 3


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda ring: ring.add(action=1, done=True), r"columns \['observation'\] are missing, \[\] are none"),
        (lambda ring: ring.add(observation=[1, 2], action=1, done=True), r"the shape \(2,\); \(3,\) is expected"),
        (lambda ring: ring.add(observation=[1, 2, 3], action=1.5, done=True), "float64, which does not go into int64"),
        (lambda ring: ring.add(observation=[1, 2, 3], action=1, done=1), "int64, which does not go into bool"),
        (lambda ring: ring.add(observation=[1, 2, 3], action=1 << 70, done=True), "does not fit into int64"),
        (lambda ring: ring.draw(np.random.default_rng(0), 3), "the ring is empty"),
        (lambda ring: ring.draw(3, 3), r"3 is no numpy.random.Generator; make one"),
        (lambda ring: ring.take(np.array([0])), "places from 0 to 0; it holds 0 transitions"),
        (lambda ring: ring.update(np.array([0.5]), action=[1]), "places are float64 of shape"),
        (lambda ring: perdure.Ring(0, COLUMNS), "capacity=0; a whole number from 1"),
        (lambda ring: perdure.Ring(3, {}), "at least one column"),
        (lambda ring: perdure.Ring(3, {"a b": np.int8}), "use a plain identifier"),
        (lambda ring: perdure.Ring(3, {"a": object}), "neither a dtype nor a dtype and a shape"),
        (lambda ring: perdure.Ring(3, {"a": "nonsense"}), "neither a dtype nor a dtype and a shape"),
    ],
)
def test_wrong_calls_are_told(do: Any, message: str):
    """And nothing is added."""
    ring = perdure.Ring(10, COLUMNS)
    with pytest.raises(UsageError, match=message):
        do(ring)
    assert len(ring) == 0


def test_a_ring_comes_back_in_place(tmp_path: Path):
    """Every row, the total and the cursor; the twin without its newest row is another state."""
    ring = filled(perdure.Ring(2_000, COLUMNS, num_envs=2), 5_000)
    perdure.save(tmp_path / "a", ring=ring)
    fresh = perdure.Ring(2_000, COLUMNS, num_envs=2)

    assert perdure.load(tmp_path / "a", ring=fresh)["ring"] is fresh

    assert content(fresh) == content(ring)
    assert fresh.cursor == ring.cursor
    twin = filled(perdure.Ring(2_000, COLUMNS, num_envs=2), 4_999)
    assert content(twin) != content(ring)
    perdure.save(tmp_path / "a", ring=fresh, exist_ok=True)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (perdure.Ring(2_001, COLUMNS), r"ring/rows: capacity 2,000 in the run, capacity 2,001 here"),
        (perdure.Ring(2_000, COLUMNS, num_envs=2), r"ring/rows/action: int64 a row in the run, int64 2 here"),
        (
            perdure.Ring(2_000, {**COLUMNS, "action": np.int32}),
            "ring/rows/action: int64 a row in the run, int32 a row here",
        ),
        (
            perdure.Ring(2_000, {**COLUMNS, "more": np.int32}),
            "ring/rows/more: no such column in the run, int32 a row here",
        ),
    ],
)
def test_another_ring_is_refused(tmp_path: Path, target: perdure.Ring, message: str):
    """And nothing changes."""
    perdure.save(tmp_path / "a", ring=filled(perdure.Ring(2_000, COLUMNS), 5_000))
    with pytest.raises(ContractError, match=message):
        perdure.load(tmp_path / "a", ring=target)
    assert len(target) == 0


def test_a_ring_that_holds_rows_is_put_back_if_the_restore_fails(tmp_path: Path):
    """All or nothing, for full targets too."""

    class Fails:
        has_failed = False

        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise RuntimeError("no")

    perdure.save(tmp_path / "a", ring=filled(perdure.Ring(20, COLUMNS), 50), z=Fails())
    target = filled(perdure.Ring(20, COLUMNS), 7, seed=1)
    before = content(target)

    with pytest.raises(perdure.RestoreError, match="has been put back"):
        perdure.load(tmp_path / "a", ring=target, z=Fails())

    assert content(target) == before


def test_damage_leaves_an_empty_ring_empty(tmp_path: Path):
    """Although rows are read into its memory before the damage is found."""
    perdure.save(tmp_path / "a", ring=filled(perdure.Ring(2_000, COLUMNS), 1_500))
    (file,) = (tmp_path / "a").glob("ring.*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    target = perdure.Ring(2_000, COLUMNS)
    with pytest.raises(perdure.DamagedError, match="are not what was written"):
        perdure.load(tmp_path / "a", ring=target)
    assert len(target) == 0


def test_a_subclass_is_not_taken_for_the_ring_alone():
    """It may hold more."""

    class More(perdure.Ring):
        pass

    with pytest.raises(UnknownObjectError, match="no adapter knows a"):
        perdure.save("nowhere", ring=More(3, COLUMNS))


def collect(ring: perdure.Ring, rng: np.random.Generator, number: int, edit: str) -> None:
    """New rows, and an edit among the old ones: known to the ring, or behind its back."""
    for _ in range(number):
        ring.add(observation=rng.normal(size=3), action=rng.integers(9), done=rng.random() < 0.1)
    if edit == "update":
        places = ring.draw(rng, 3)
        ring.update(places, action=rng.integers(9, 20, size=3))
    if edit == "behind its back":
        ring._columns["action"][rng.integers(100)] = 77


def trained(run_directory: Path, until: int, *, stop: int | None = None, edit: str = "") -> perdure.Ring:
    """A run of rings that samples, stopped without a word after `stop` steps."""
    ring, rng = perdure.Ring(3_000, COLUMNS), np.random.default_rng(0)
    with perdure.Run(run_directory, every=perdure.Every(env_steps=500), horizon=until) as run:
        run.restore(ring=ring, rng=rng)
        while run.env_steps < until and run.env_steps != stop:
            collect(ring, rng, 250, edit)
            metrics = {"sum": float(ring.sample(rng, 32)["observation"].sum())}
            run.boundary(env_steps=run.env_steps + 250, metrics=metrics)
        if stop is None:
            run.finish()
    return ring


@pytest.mark.parametrize("edit", ["", "update"])
def test_a_run_is_the_same_wherever_it_was_stopped(tmp_path: Path, edit: str):
    """Before the ring is full, and while old rows are overwritten; with edits of old transitions too."""
    straight = trained(tmp_path / "straight", 7_000, edit=edit)
    for stop in (750, 3_250, 5_000):
        trained(tmp_path / "stopped", 7_000, stop=stop, edit=edit)
    stopped = trained(tmp_path / "stopped", 7_000, edit=edit)

    assert content(stopped) == content(straight)
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("straight", "stopped")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"action": np.array([3]), "doen": np.array([True])}, r"no columns \['doen'\]; there are \['observation'"),
        ({"action": np.array([3]), "done": np.array([1.5])}, "done is float64, which does not go into bool"),
        ({"action": np.array([3, 4])}, r"action has the shape \(2,\); \(1,\) is expected"),
    ],
)
def test_an_update_that_is_refused_changes_nothing(columns: dict[str, Any], message: str):
    """Not even the columns that were right."""
    ring = filled(perdure.Ring(10, COLUMNS), 4)
    before = content(ring)
    with pytest.raises(UsageError, match=message):
        ring.update(np.array([2]), **columns)
    assert content(ring) == before


def test_an_edit_behind_the_rings_back_is_the_twin(tmp_path: Path):
    """So the test above can fail: what the ring does not know of is not found in blocks that it knows."""
    ring = filled(perdure.Ring(3_000, COLUMNS), 3_000)
    run = perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1))
    run.restore(ring=ring)
    ring._columns["action"][5] = 77
    run.boundary(env_steps=1)
    run.close()
    fresh = perdure.Ring(3_000, COLUMNS)
    perdure.Run(tmp_path / "run").restore(ring=fresh)
    assert content(fresh) != content(ring)


def test_an_update_is_found_and_rewritten(tmp_path: Path):
    """The edited transition is in the checkpoint, and so is every other."""
    ring = filled(perdure.Ring(3_000, COLUMNS), 3_000)
    with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
        run.restore(ring=ring)
        ring.update(np.array([5, 2_999]), action=np.array([77, 78]))
        run.boundary(env_steps=1)
    fresh = perdure.Ring(3_000, COLUMNS)
    perdure.Run(tmp_path / "run").restore(ring=fresh)
    assert content(fresh) == content(ring)
    assert fresh.columns["action"][[5, 2_999]].tolist() == [77, 78]


class Own:
    """A buffer that keeps plain arrays, as users' do."""

    def __init__(self) -> None:
        self.x, self.y, self.added = np.zeros((3_000, 2)), np.zeros(3_000, np.int64), 0

    def push(self, value: int) -> None:
        at = self.added % len(self.x)
        self.x[at], self.y[at] = value, value
        self.added += 1

    def state_dict(self) -> dict[str, Any]:
        return {"ring": perdure.Ring.over({"x": self.x, "y": self.y}, self.added)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.added = state["ring"].total
        self.x, self.y = state["ring"].columns.values()


def test_arrays_of_the_users_own_are_filled_in_place_and_edits_are_found(tmp_path: Path):
    """Nobody tells of the edits; what nobody touched is shared."""
    own = Own()
    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        run.restore(own=own)
        for value in range(5_000):
            own.push(value)
        run.boundary(env_steps=1)
        own.y[500] = -7
        run.boundary(env_steps=2)
        run.boundary(env_steps=3)
    newest = tmp_path / "run" / "checkpoints" / "step_0000000003"
    assert all(file.stat().st_nlink == 2 for file in newest.glob("own.*"))
    back = Own()
    x = back.x
    perdure.Run(tmp_path / "run").restore(own=back)
    assert back.x is x
    assert (back.added, back.y[500]) == (5_000, -7)
    assert (back.x.tobytes(), back.y.tobytes()) == (own.x.tobytes(), own.y.tobytes())


@pytest.mark.parametrize(
    "columns", [{}, {"x": np.zeros(3), "y": np.zeros(4)}, {"x": np.float64(1)}, {"x": np.zeros((3, 2), order="F")}]
)
def test_what_is_no_ring_of_arrays_is_refused(columns: dict[str, Any]):
    """Where it is made."""
    with pytest.raises(UsageError, match=r"Ring\.over: arrays in C order, all with the same first axis"):
        perdure.Ring.over(columns, 0)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda ring: pickle.loads(pickle.dumps(ring))])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_copy_is_a_ring_of_its_own(tmp_path: Path, how: Any, mapped: bool):
    """What is added to it is what is taken from it, and the first ring keeps what it held."""
    ring = filled(perdure.Ring(8, COLUMNS, directory=tmp_path if mapped else None), 5)
    before = content(ring)
    copied = how(ring)
    assert content(copied) == before
    copied.add(observation=[7.0, 8.0, 9.0], action=6, done=True)
    copied.update(np.array([0]), action=np.array([4]))
    assert copied.take(np.array([5]))["observation"].tolist() == [[7.0, 8.0, 9.0]]
    assert copied.take(np.array([0, 5]))["action"].tolist() == copied.columns["action"][[0, 5]].tolist() == [4, 6]
    assert content(ring) == before


@pytest.mark.parametrize("total", [-1, 1.5, True])
def test_a_total_that_is_no_count_is_refused(total: Any):
    """At once, not when it is saved."""
    with pytest.raises(UsageError, match=r"Ring\.over: total=.*; a whole number, of all rows that were ever added"):
        perdure.Ring.over({"x": np.zeros(3)}, total)


def test_a_total_may_be_a_number_of_numpy(tmp_path: Path):
    """As counters among arrays are."""
    perdure.save(tmp_path / "saved", ring=perdure.Ring.over({"x": np.arange(3.0)}, np.int32(2)))  # pyright: ignore[reportArgumentType]
    back = perdure.Ring.over({"x": np.zeros(3)}, 0)
    perdure.load(tmp_path / "saved", ring=back)
    assert back.total == 2
    assert back.columns["x"].tolist() == [0.0, 1.0, 0.0]


def test_another_capacity_and_other_columns_are_told_together(tmp_path: Path):
    """One resume that is refused tells all."""
    perdure.save(tmp_path / "saved", ring=perdure.Ring(3, {"x": np.float32}))
    with pytest.raises(ContractError) as refusal:
        perdure.load(tmp_path / "saved", ring=perdure.Ring(4, {"x": np.float64}))
    assert "ring/rows: capacity 3 in the run, capacity 4 here" in str(refusal.value)
    assert "ring/rows/x: float32 a row in the run, float64 a row here" in str(refusal.value)
