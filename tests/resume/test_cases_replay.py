"""Faults of replay buffers that users reported elsewhere, by their numbers in CASES, and what happens here."""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import ContractError, UsageError

COLUMNS = {"observation": (np.float32, (4,)), "reward": np.float32}


def fill(ring: perdure.Ring, rng: np.random.Generator, rows: int) -> None:
    """Adds so many rows."""
    ring.extend(observation=rng.normal(size=(rows, 4)), reward=rng.normal(size=rows))


def content(ring: perdure.Ring) -> list[Any]:
    """What it holds, oldest first."""
    slots = np.arange(ring.start, ring.total) % ring.capacity
    return [ring.total, *(ring.columns[name][slots].tobytes() for name in COLUMNS)]


@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_case_6_the_ring_is_as_old_as_the_weights_is_not_doubled_and_not_empty(tmp_path: Path, *, in_files: bool):
    """What was added after the checkpoint is gone, also where the files on the disk have it."""
    files = tmp_path / "files"
    folder = files if in_files else None
    ring, weights, rng = perdure.Ring(3_000, COLUMNS, directory=folder), np.zeros(3), np.random.default_rng(0)
    fill(ring, rng, 2_500)
    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        run.restore(ring=ring, rng=rng, weights=weights)
        fill(ring, rng, 2_500)
        run.boundary(env_steps=1, weights=weights + 1)
        wanted = content(ring)
        fill(ring, rng, 900)
    assert content(ring) != wanted
    if in_files:
        newer = [np.fromfile(files / f"{name}.column", np.uint8) for name in COLUMNS]
        assert all(file.any() for file in newer)
    del ring

    for _ in range(2):  # loaded twice, it does not double
        back = perdure.Ring(3_000, COLUMNS, directory=folder)
        assert len(back) == 0
        with perdure.Run(tmp_path / "run") as run:
            restored = run.restore(ring=back, rng=rng, weights=weights)
        assert content(back) == wanted
        assert restored.weights.tolist() == [1, 1, 1]
        fill(back, rng, 100)


def test_case_6_files_of_another_ring_are_refused(tmp_path: Path):
    """By the column's file, before anything is written to it."""
    perdure.Ring(10, COLUMNS, directory=tmp_path)
    with pytest.raises(
        UsageError, match=r"reward\.column has 40 bytes, where this column takes 80\. Build the ring as"
    ):
        perdure.Ring(20, {"reward": np.float32}, directory=tmp_path)


def test_case_6_a_mapped_array_that_cannot_be_written_to_is_refused(tmp_path: Path):
    """A restore could not roll it back."""
    rows = np.memmap(tmp_path / "file", np.float32, "w+", shape=(4,))
    rows[:] = 1
    perdure.save(tmp_path / "a", rows=rows)
    with pytest.raises(
        ContractError, match=r"rows: float32 4 in the run, a memory-mapped array that cannot be written"
    ):
        perdure.load(tmp_path / "a", rows=np.memmap(tmp_path / "file", np.float32, "r", shape=(4,)))
    rows[:] = 2
    assert perdure.load(tmp_path / "a", rows=rows)["rows"] is rows
    assert rows.tolist() == [1, 1, 1, 1]


class SumTree:
    """A prioritised buffer as users write it: plain arrays, a sum tree, and a queue of steps for n-step returns."""

    def __init__(self) -> None:
        self.values = np.zeros((64, 2))
        self.tree = np.zeros(128)
        self.added, self.max_priority = 0, 1.0
        self.queue: deque[tuple[float, float]] = deque(maxlen=3)

    def push(self, first: float, second: float) -> None:
        self.queue.append((first, second))
        if len(self.queue) == 3:
            self.values[self.added % 64] = self.queue[0][0], sum(step[1] for step in self.queue)
            self.prioritise(self.added % 64, self.max_priority)
            self.added += 1

    def prioritise(self, place: int, priority: float) -> None:
        self.max_priority = max(self.max_priority, priority)
        node = place + 64
        change = priority - self.tree[node]  # adds up rounding errors: the sums cannot be made anew from the leaves
        while node:
            self.tree[node] += change
            node //= 2

    def draw(self, rng: np.random.Generator) -> int:
        mass, node = rng.random() * self.tree[1], 1
        while node < 64:
            node, mass = (2 * node, mass) if mass < self.tree[2 * node] else (2 * node + 1, mass - self.tree[2 * node])
        return node - 64

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Beside:
    """The same on a `Ring` that keeps the values, with the tree in arrays beside it."""

    def __init__(self) -> None:
        self.plain = SumTree()
        self.ring = perdure.Ring(64, {"value": np.float64})

    def push(self, first: float, second: float) -> None:
        self.plain.push(first, second)
        self.ring.add(value=first)

    def prioritise(self, place: int, priority: float) -> None:
        self.plain.prioritise(place, priority)

    def draw(self, rng: np.random.Generator) -> int:
        return self.plain.draw(rng)

    state_dict, load_state_dict = SumTree.state_dict, SumTree.load_state_dict


def go_on(buffer: Any, rng: np.random.Generator, steps: int) -> list[int]:
    """Pushes, draws and gives new priorities; returns what was drawn."""
    drawn = []
    for _ in range(steps):
        buffer.push(float(rng.random()), float(rng.random()))
        drawn.append(buffer.draw(rng))
        buffer.prioritise(drawn[-1], float(rng.random() * 5))
    return drawn


def _tree_made_anew(buffer: SumTree) -> None:
    for node in range(63, 0, -1):
        buffer.tree[node] = buffer.tree[2 * node] + buffer.tree[2 * node + 1]


LOST: dict[str, Any] = {
    "nothing": lambda buffer: None,
    "the tree": lambda buffer: buffer.tree.fill(1.0),
    "the last bits of the sums": _tree_made_anew,
    "max_priority": lambda buffer: setattr(buffer, "max_priority", 1.0),
    "the queue": lambda buffer: buffer.queue.clear(),
}


@pytest.mark.parametrize("kind", [SumTree, Beside])
@pytest.mark.parametrize("lost", LOST)
def test_case_7_the_next_draws_of_a_users_own_sum_tree_are_the_same(kind: Any, lost: str, tmp_path: Path):
    """Twins that lose a part draw otherwise, or hold another tree."""
    buffer, rng = kind(), np.random.default_rng(0)
    go_on(buffer, rng, 300)
    perdure.save(tmp_path / "a", buffer=buffer, rng=rng)
    back, back_rng = kind(), np.random.default_rng(7)
    perdure.load(tmp_path / "a", buffer=back, rng=back_rng)

    LOST[lost](getattr(back, "plain", back))

    wanted, found = go_on(buffer, rng, 200), go_on(back, back_rng, 200)
    trees = [getattr(each, "plain", each).tree.tobytes() for each in (buffer, back)]
    assert (wanted == found and trees[0] == trees[1]) == (lost == "nothing")


@pytest.mark.parametrize("lost", ["nothing", "tree", "max_priority"])
def test_case_7_the_next_draws_of_a_prioritized_ring_are_the_same(lost: str, tmp_path: Path):
    """Across a run that was stopped; twins that have a part as a fresh ring has it draw otherwise."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    _learned(stopped, 6)
    (ring, rng), (back, back_rng) = _learned(straight, 10), _learned(stopped, 10)
    if lost != "nothing":
        fresh = perdure.PrioritizedRing(40, {"value": np.float64})
        fresh.extend(value=np.zeros(40))
        setattr(back, lost, getattr(fresh, lost))

    drawn = []
    for each, generator in ((ring, rng), (back, back_rng)):
        each.extend(value=generator.random(20))
        drawn.append(each.draw(generator, 64).tolist())
    assert (drawn[0] == drawn[1]) == (lost == "nothing")


def _learned(directory: Path, until: int) -> tuple[perdure.PrioritizedRing, np.random.Generator]:
    ring, rng = perdure.PrioritizedRing(40, {"value": np.float64}), np.random.default_rng(0)
    with perdure.Run(directory, every=perdure.Every(updates=2)) as run:
        run.restore(ring=ring, rng=rng)
        while run.env_steps < until:
            ring.extend(value=rng.random(9))
            ring.prioritise(ring.draw(rng, 8), rng.random(8) * 4)
            run.boundary(env_steps=run.env_steps + 1)
    return ring, rng
