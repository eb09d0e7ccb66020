"""Commits beside the training: what is on disk is the state at the call, one is in flight, no failure is silent."""

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import CaptureError, DamagedError
from perdure.runs.committer import scores_of
from perdure.runs.lineage import read_lineage
from perdure.store import local
from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes

EVERY = perdure.Every(updates=1)


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step_{step:010d}"


def timings(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]


class Gate(FileSystem):
    """Lets nobody write to a file before it is opened."""

    opened = threading.Event()
    waiting = threading.Event()
    closed_for = "x.safetensors"

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        if path.name == self.closed_for:
            type(self).waiting.set()
            self.opened.wait()
        super().write_file(path, pieces)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Gate]]:
    """Open at first; `opened.clear()` closes it."""
    kind = type("Gated", (Gate,), {"opened": threading.Event(), "waiting": threading.Event()})
    kind.opened.set()
    monkeypatch.setattr(local, "FileSystem", kind)
    yield kind
    kind.opened.set()


def test_what_is_on_disk_is_the_state_at_the_call(tmp_path: Path, gate: type[Gate]) -> None:
    """CASES 13: everything mutable is changed in place right after `boundary` returned, before a byte was written."""
    x, view = np.arange(6.0), np.zeros((4, 4))
    order = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    state = {"list": [1, [2]], "dict": {"a": 1}, "array": np.ones(2), "deque": deque([1, 2])}
    generator = np.random.default_rng(1)
    run = perdure.Run(tmp_path, every=EVERY)
    run.restore(x=x, view=view[::2, 1:3], order=order, state=state, generator=generator)
    gate.opened.clear()
    run.boundary(env_steps=1, x=x, view=view[::2, 1:3], order=order, state=state)
    saved_generator = generator.bit_generator.state
    gate.waiting.wait()
    for array in (x, view, order, state["array"]):
        array[...] = -1
    state["list"].append(3)
    state["list"][1].append(4)
    state["dict"]["b"] = 2
    state["deque"].append(3)
    generator.random(100)
    gate.opened.set()
    run.close()

    saved = perdure.read(checkpoint(tmp_path, 1))
    assert saved["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert saved["view"].tolist() == [[0, 0], [0, 0]]
    assert (saved["order"].tolist(), saved["order"].flags.f_contiguous) == ([[0, 1, 2], [3, 4, 5]], True)
    assert saved["state"]["list"] == [1, [2]]
    assert saved["state"]["dict"] == {"a": 1}
    assert saved["state"]["array"].tolist() == [1, 1]
    assert saved["state"]["deque"]["items"] == [1, 2]
    fresh = np.random.default_rng(2)
    perdure.load(checkpoint(tmp_path, 1), only=["generator"], generator=fresh)
    assert fresh.bit_generator.state == saved_generator


def test_a_twin_that_does_not_copy_is_found(tmp_path: Path, gate: type[Gate], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above sees a snapshot that borrows."""
    monkeypatch.setattr("perdure.runs.committer._owned", lambda snapshot: snapshot)
    x = np.zeros(3)
    run = perdure.Run(tmp_path, every=EVERY)
    run.restore(x=x)
    gate.opened.clear()
    run.boundary(env_steps=1, x=x)
    gate.waiting.wait()
    x[:] = -1
    gate.opened.set()
    run.close()

    assert perdure.read(checkpoint(tmp_path, 1))["x"].tolist() == [-1, -1, -1]


@pytest.mark.jax
def test_jax_arrays_that_are_donated_right_after_are_saved_as_they_were(tmp_path: Path, gate: type[Gate]) -> None:
    """Their memory is not copied, so the snapshot must keep it from being written to or freed."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    x = jnp.arange(10_000.0)
    run = perdure.Run(tmp_path, every=EVERY)
    run.restore(x=x, key=jax.random.key(3))
    gate.opened.clear()
    run.boundary(env_steps=1, x=x, key=jax.random.key(3))
    gate.waiting.wait()
    for _ in range(5):
        x = step(x)
    x.block_until_ready()
    gate.opened.set()
    run.close()

    assert float(x[0]) == -1
    assert (perdure.read(checkpoint(tmp_path, 1))["x"] == np.arange(10_000.0)).all()


def test_one_commit_is_in_flight_and_the_next_boundary_waits_for_it(tmp_path: Path, gate: type[Gate]) -> None:
    """Bounded memory: boundaries that are not due go on meanwhile."""
    run = perdure.Run(tmp_path, every=perdure.Every(updates=2), keep=None)
    run.restore(x=np.zeros(3))
    run.boundary(env_steps=1, x=np.full(3, 1.0))
    gate.opened.clear()
    run.boundary(env_steps=2, x=np.full(3, 2.0))
    gate.waiting.wait()
    run.boundary(env_steps=3, x=np.full(3, 3.0))
    assert not checkpoint(tmp_path, 2).exists()
    fourth = threading.Thread(target=lambda: run.boundary(env_steps=4, x=np.full(3, 4.0)))
    fourth.start()
    fourth.join(timeout=0.2)
    assert fourth.is_alive()
    assert not checkpoint(tmp_path, 2).exists()
    gate.opened.set()
    fourth.join()
    assert checkpoint(tmp_path, 2).exists()
    run.close()

    assert [row["checkpoint"] for row in timings(tmp_path)] == [f"step_{step:010d}" for step in (0, 2, 4)]
    assert timings(tmp_path)[-1]["blocked_s"] > 0.1


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_what_a_commit_cost_is_noted(tmp_path: Path, background: bool) -> None:
    with perdure.Run(tmp_path, every=EVERY, background=background) as run:
        run.restore(x=np.zeros(1000), fixed=np.zeros(1000))
        run.boundary(env_steps=1, x=np.ones(1000), fixed=np.zeros(1000))
        run.finish(x=np.ones(1000), fixed=np.zeros(1000))

    rows = timings(tmp_path)
    assert [row["checkpoint"] for row in rows] == ["step_0000000000", "step_0000000001"]
    assert all(row["blocked_s"] >= 0 and row["save_s"] > 0 for row in rows)
    files = {path.name: path.stat().st_size for path in checkpoint(tmp_path, 1).iterdir()}
    assert rows[1]["size_bytes"] == sum(files.values())
    shared = files["fixed.safetensors"] + files["process_rng.safetensors"]
    assert rows[1]["written_bytes"] == rows[1]["size_bytes"] - shared
    if not background:
        assert rows[1]["blocked_s"] >= rows[1]["save_s"]


def test_an_object_that_cannot_be_captured_is_told_at_the_boundary(tmp_path: Path) -> None:
    """Captured before `boundary` returns, in the background mode too."""
    with perdure.Run(tmp_path, every=EVERY) as run:
        run.restore(x=[1])
        with pytest.raises(CaptureError):
            run.boundary(env_steps=1, x=[object()])


def test_after_commit_gets_each_committed_directory(tmp_path: Path) -> None:
    seen = []

    def look(directory: Path) -> None:
        seen.append((directory.name, perdure.read(directory)["x"]))

    with perdure.Run(tmp_path, every=EVERY, after_commit=look) as run:
        run.restore(x=0)
        for step in (1, 2, 3):
            run.boundary(env_steps=step, x=step)
        run.finish(x=3)

    assert seen == [(f"step_{step:010d}", step) for step in range(4)]


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_an_after_commit_that_fails_is_reported_and_not_fatal(
    tmp_path: Path, background: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(directory: Path) -> None:
        raise ConnectionError(f"cannot upload {directory.name}")

    with perdure.Run(tmp_path, every=EVERY, after_commit=fail, background=background) as run:
        run.restore(x=0)
        run.boundary(env_steps=1, x=1)
        run.finish(x=1)

    events = [event for event in read_lineage(tmp_path / "lineage.jsonl") if event["event"] == "after_commit_failed"]
    assert [event["checkpoint"] for event in events] == ["step_0000000000", "step_0000000001"]
    assert events[1]["problem"] == "ConnectionError: cannot upload step_0000000001"
    assert "after_commit failed for step_0000000001" in caplog.text
    assert perdure.read(checkpoint(tmp_path, 1))["x"] == 1


def train_sharing(path: Path, *, until: int = 3, **options: Any) -> perdure.Run:
    """`fixed` never changes, `x` always."""
    with perdure.Run(path, every=EVERY, keep=perdure.Keep(last=9), **options) as run:
        run.restore(fixed=np.arange(100.0), x=np.zeros(100))
        for step in range(run.env_steps + 1, until + 1):
            run.boundary(env_steps=step, fixed=np.arange(100.0), x=np.full(100, float(step)))
        run.finish(fixed=np.arange(100.0), x=np.full(100, float(until)))
    return run


def test_the_file_of_a_component_that_did_not_change_is_linked(tmp_path: Path) -> None:
    train_sharing(tmp_path)

    fixed = [(checkpoint(tmp_path, step) / "fixed.safetensors").stat() for step in range(4)]
    moving = [(checkpoint(tmp_path, step) / "x.safetensors").stat() for step in range(4)]
    assert len({status.st_ino for status in fixed}) == 1
    assert {status.st_nlink for status in fixed} == {4}
    assert len({status.st_ino for status in moving}) == 4
    assert {status.st_nlink for status in moving} == {1}


def test_a_resume_begins_with_files_of_its_own(tmp_path: Path) -> None:
    """Its process has not seen the files before, so it does not build on them."""
    train_sharing(tmp_path, until=1)
    train_sharing(tmp_path, until=3)

    inodes = [(checkpoint(tmp_path, step) / "fixed.safetensors").stat().st_ino for step in range(4)]
    assert inodes[0] == inodes[1] != inodes[2] == inodes[3]


def test_where_links_cannot_be_made_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(self: FileSystem, source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(target))

    monkeypatch.setattr(FileSystem, "link", no_links)
    train_sharing(tmp_path)

    fixed = [(checkpoint(tmp_path, step) / "fixed.safetensors").stat() for step in range(4)]
    assert len({status.st_ino for status in fixed}) == 4
    for step in range(4):
        assert (perdure.read(checkpoint(tmp_path, step))["fixed"] == np.arange(100.0)).all()


def test_each_checkpoint_stands_alone(tmp_path: Path) -> None:
    """`rm -r` of one costs no other."""
    import shutil

    train_sharing(tmp_path)
    for step in (0, 1, 3):
        shutil.rmtree(checkpoint(tmp_path, step))

    assert (perdure.read(checkpoint(tmp_path, 2))["fixed"] == np.arange(100.0)).all()


def test_damage_to_a_shared_file_is_named_in_every_checkpoint_that_shares_it(tmp_path: Path) -> None:
    """The cost of sharing, told by `verify`; `full_every` bounds it."""
    from perdure.cli.verify import examine

    train_sharing(tmp_path / "shared")
    file = checkpoint(tmp_path / "shared", 2) / "fixed.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    with file.open("r+b") as same_inode:
        same_inode.write(data)

    report = examine(str(tmp_path / "shared"))
    assert report.intact == []
    assert all("fixed.safetensors: fixed: bytes" in (found.problem or "") for found in report.checkpoints)

    with perdure.Run(tmp_path / "full", every=EVERY, keep=perdure.Keep(last=9, full_every=2)) as run:
        run.restore(fixed=np.arange(9.0), x=0)
        for step in (1, 2, 3):
            run.boundary(env_steps=step, fixed=np.arange(9.0), x=step)
        run.finish(fixed=np.arange(9.0), x=3)
    with (checkpoint(tmp_path / "full", 2) / "fixed.safetensors").open("r+b") as same_inode:
        same_inode.seek(-1, 2)
        same_inode.write(b"\x7f")
    assert examine(str(tmp_path / "full")).intact == ["step_0000000001", "step_0000000000"]


def test_strict_refuses_to_step_back(tmp_path: Path) -> None:
    train_sharing(tmp_path)
    (checkpoint(tmp_path, 3) / "x.safetensors").unlink()
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    with pytest.raises(DamagedError, match=r"step_0000000003/x\.safetensors: \d+ bytes were written, found missing"):
        train_sharing(tmp_path, until=4, strict=True)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before

    resumed = train_sharing(tmp_path, until=4)
    assert "stepped back over a damaged checkpoint" in resumed.notices[0]


@pytest.mark.parametrize(
    ("metrics", "scores"),
    [
        ({"a": 1, "b": 2.5, "c": -3}, {"a": 1, "b": 2.5, "c": -3}),
        ({"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 10**400}, {}),
        ({"a": "text", "b": None, "c": True, "d": [1.0], "e": np.ones(2)}, {}),
        (
            {"a": np.float32(0.5), "b": np.int64(7), "c": np.array(2.0), "d": np.float64("nan")},
            {"a": 0.5, "b": 7, "c": 2.0},
        ),
    ],
)
def test_scores_are_the_finite_numbers_among_the_metrics(metrics: dict, scores: dict) -> None:
    found = scores_of(metrics)

    assert found == scores
    assert all(type(value) in (int, float) for value in found.values())


def test_a_metric_beyond_all_floats_is_no_score_and_no_obstacle(tmp_path: Path) -> None:
    with perdure.Run(tmp_path, every=EVERY, keep=perdure.Keep(best=1, metric="n")) as run:
        run.restore(x=0)
        for step in (1, 2):
            run.boundary(env_steps=step, x=step, metrics={"n": 10**400})
        run.finish(x=2)

    assert run.metrics_rows()[-1]["n"] == 10**400


MEMORY = """
import resource, sys
import numpy as np
import perdure
mebibytes = int(sys.argv[2])
# Pages of anonymous zeros count once they are written to.
state = {f"part_{n}": np.full((mebibytes << 20) // 8 // 4, float(n)) for n in range(4)}
state["part_3"] = state["part_3"].reshape(1024, -1).T          # another memory order
run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1), background=False)
run.restore(small=np.zeros(10), **state)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for value in state.values():
    value += 1
run.boundary(env_steps=1, small=np.ones(10), **state)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def extra_mebibytes(path: Path, state_mebibytes: int) -> int:
    """Peak resident memory of a synchronous save beyond what there was before it."""
    command = [sys.executable, "-c", MEMORY, str(path), str(state_mebibytes)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(result.stdout)


def test_a_synchronous_save_streams(tmp_path: Path) -> None:
    """96 MiB of state; the peak of the save is above that of `restore`, which saved boundary 0, by next to nothing."""
    assert extra_mebibytes(tmp_path / "run", 96) <= 16


def test_a_synchronous_one_shot_save_streams(tmp_path: Path) -> None:
    """The same without a run, traced allocation by allocation."""
    import tracemalloc

    state = {"a": np.ones(6 << 20), "b": np.ones((6 << 10, 1 << 10)).T}
    tracemalloc.start()
    perdure.save(tmp_path / "c", exist_ok=False, **state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 << 20


@pytest.mark.slow
def test_a_synchronous_save_of_512_mib_streams(tmp_path: Path) -> None:
    """At most 64 MiB extra, traced."""
    import tracemalloc

    state = {f"part_{n}": np.ones(16 << 20) for n in range(4)}
    tracemalloc.start()
    perdure.save(tmp_path / "c", exist_ok=False, **state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 64 << 20
    assert extra_mebibytes(tmp_path / "run", 512) <= 64
