"""Forks: a run of its own from the very state of another one, there whole or not at all, the other one untouched."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perdure import ContractError, DamagedError, Every, NoCheckpointError, NoRunError, Run, UsageError
from perdure.adapters.adapter import ExactAdapter
from perdure.checkpoint.opening import Opened, open_checkpoint
from perdure.checkpoint.segments import SMALLEST_SEGMENT_ROWS
from perdure.format.manifest import Manifest
from perdure.runs import fork as fork_module
from perdure.runs.directory import RunDirectory, step_name
from perdure.runs.fork import fork
from perdure.runs.lineage import read_lineage
from perdure.runs.record import RunRecord, read_record
from perdure.tree.diff import diff_snapshots
from perdure.tree.rows import Rows

TOTAL = 8 * 15
"""Of the parent in `tests/resume/numpy_loop.py`: 8 updates of 15 steps."""


pytestmark = pytest.mark.usefixtures("global_generators")


@pytest.fixture
def parent(numpy_loop: ModuleType, tmp_path: Path) -> Path:
    """A finished run with a checkpoint every 15 steps."""
    numpy_loop.train(tmp_path / "parent")
    return tmp_path / "parent"


def record(run: Path) -> RunRecord:
    return read_record(run / "run.json")


def opened(run: Path, env_steps: int) -> Opened:
    return open_checkpoint(RunDirectory(run).store(), step_name(env_steps))


def manifest(run: Path, env_steps: int) -> Manifest:
    return opened(run, env_steps).manifest


def events(run: Path) -> list[dict[str, Any]]:
    return read_lineage(run / "lineage.jsonl")


def contents(path: Path) -> dict[Path, bytes]:
    """Every file; nothing of it, the lock included, may be touched."""
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


CAPACITY = 3 * SMALLEST_SEGMENT_ROWS


class Ring:
    """A ring of rows; `Rings` makes segments of it, which later checkpoints share."""

    def __init__(self) -> None:
        self.column, self.added = np.zeros(CAPACITY), 0

    def add(self, number: float) -> None:
        for _ in range(SMALLEST_SEGMENT_ROWS):
            self.column[self.added % CAPACITY] = number
            self.added += 1


class Rings(ExactAdapter):
    """The adapter of `Ring`."""

    id = "x-ring"
    kind = "live"

    def capture(self, obj: Ring, walk: object) -> dict[str, Rows]:
        return {"rows": Rows(max(0, obj.added - CAPACITY), obj.added, {"x": obj.column})}

    def check(self, obj: Ring, tree: object, walk: object) -> list[Any]:
        return []

    def restore(self, obj: Ring, tree: dict[str, Rows], walk: object) -> Ring:
        obj.column[...], obj.added = tree["rows"].columns["x"], tree["rows"].stop
        return obj


def train(
    run: Path,
    until: int,
    *,
    rate: float = 0.5,
    accept: tuple[str, ...] = (),
) -> None:
    """A small training with a ring, a step an update, all of them saved."""
    saving: dict[str, Any] = {"every": Every(updates=1), "keep": None, "adapters": [(Ring, Rings())]}
    with Run(run, config={"rate": rate}, accept=accept, **saving) as opened_run:
        ring, weight = Ring(), 0.0
        weight = opened_run.restore(ring=ring, weight=weight).weight
        while opened_run.env_steps < until:
            weight += rate
            ring.add(weight)
            opened_run.boundary(env_steps=opened_run.env_steps + 1, weight=weight, metrics={"weight": weight})


def test_the_first_checkpoint_is_the_parent_s_leaf_for_leaf(parent: Path, tmp_path: Path):
    fork(parent, 60, tmp_path / "child")
    ours, theirs = opened(tmp_path / "child", 60), opened(parent, 60)

    assert names(tmp_path / "child" / "checkpoints") == ["step_0000000060"]
    assert diff_snapshots(ours.snapshot, theirs.snapshot) == []
    assert ours.manifest.state_digest == theirs.manifest.state_digest
    assert diff_snapshots(ours.snapshot, opened(parent, 75).snapshot) != []  # the next one is another state


def test_it_has_its_own_identity_and_remembers_its_parent(parent: Path, tmp_path: Path):
    fork(parent, 60, tmp_path / "child")
    child, theirs = record(tmp_path / "child"), opened(parent, 60)
    link = {"run_id": record(parent).run_id, "checkpoint": "step_0000000060", "digest": theirs.digest}

    assert child.run_id != record(parent).run_id
    assert child.parent == link
    assert (child.contract, child.versions) == (theirs.manifest.contract, theirs.manifest.arithmetic)
    own = manifest(tmp_path / "child", 60)
    assert (own.run_id, own.parent) == (child.run_id, theirs.digest)
    started, committed = events(tmp_path / "child")
    assert (started["event"], started["run_id"], started["forked_from"]) == ("started", child.run_id, link)
    assert (committed["event"], committed["digest"]) == ("committed", opened(tmp_path / "child", 60).digest)
    assert record(parent).parent is None


@pytest.mark.parametrize("number", [0, 4, 8])
def test_it_has_the_metric_rows_up_to_there_and_not_one_more(parent: Path, tmp_path: Path, number: int):
    fork(parent, 15 * number, tmp_path / "child")

    rows = (parent / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert len(rows) == 8
    assert (tmp_path / "child" / "metrics.jsonl").read_bytes() == b"".join(rows[:number])


def test_both_continue_bit_identically(parent: Path, numpy_loop, forgetting, comparing, tmp_path: Path):
    fork(parent, 60, tmp_path / "child")
    shutil.copytree(parent, tmp_path / "stopped")
    for env_steps in range(75, TOTAL + 1, 15):
        shutil.rmtree(tmp_path / "stopped" / "checkpoints" / step_name(env_steps))
    for run in ("child", "stopped"):
        assert numpy_loop.train(tmp_path / run).resumed

    assert sorted(comparing.checkpoints(tmp_path / "child")) == [4, 5, 6, 7, 8]
    assert comparing.differences(tmp_path / "child", tmp_path / "stopped") == []
    assert comparing.differences(tmp_path / "child", parent) == []


def test_a_fork_that_forgot_something_would_be_seen(parent: Path, numpy_loop, comparing, tmp_path: Path):
    """The twin of the test above."""
    fork(parent, 60, tmp_path / "child")

    def reset(training: Any, fresh: Any) -> None:
        training.normalizer.set_state(fresh.normalizer.get_state())

    numpy_loop.train(tmp_path / "child", reset=reset)

    assert comparing.differences(tmp_path / "child", parent) != []


def test_a_fork_of_a_fork(parent: Path, numpy_loop, comparing, tmp_path: Path):
    fork(parent, 60, tmp_path / "child")
    numpy_loop.train(tmp_path / "child")
    fork(tmp_path / "child", 90, tmp_path / "grandchild")
    numpy_loop.train(tmp_path / "grandchild")

    assert comparing.differences(tmp_path / "grandchild", parent) == []
    link = record(tmp_path / "grandchild").parent
    assert link is not None
    assert (link["run_id"], link["checkpoint"]) == (record(tmp_path / "child").run_id, "step_0000000090")
    assert link["digest"] == opened(tmp_path / "child", 90).digest


def test_the_parent_is_only_read(parent: Path, tmp_path: Path):
    before, times = contents(parent), {path: path.stat().st_mtime_ns for path in parent.rglob("*")}
    fork(parent, 60, tmp_path / "child")

    assert contents(parent) == before
    assert {path: path.stat().st_mtime_ns for path in parent.rglob("*")} == times


def test_it_owns_its_files(tmp_path: Path):
    """Damage to the parent's files, or pruning them, costs the fork nothing."""
    train(tmp_path / "parent", 6)
    fork(tmp_path / "parent", 5, tmp_path / "child")
    before = opened(tmp_path / "child", 5)
    segments = [file for file in before.manifest.files if file.startswith("ring.")]
    inodes = [
        {path.stat().st_ino for path in (tmp_path / run).rglob("*") if path.is_file()} for run in ("parent", "child")
    ]
    shutil.rmtree(tmp_path / "parent")

    assert len(segments) > 1
    assert inodes[0] & inodes[1] == set()
    assert diff_snapshots(opened(tmp_path / "child", 5).snapshot, before.snapshot) == []
    train(tmp_path / "child", 12)


def test_amendments_and_the_time_trained_are_carried_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seconds = iter(range(1000))
    clock = SimpleNamespace(monotonic=lambda: next(seconds), perf_counter=lambda: 0.0)
    monkeypatch.setattr("perdure.runs.committer.time", clock)
    train(tmp_path / "parent", 2)
    train(tmp_path / "parent", 4, rate=0.25, accept=("algorithm.rate=0.5:0.25",))
    fork(tmp_path / "parent", 4, tmp_path / "child")
    ours, theirs = manifest(tmp_path / "child", 4), manifest(tmp_path / "parent", 4)

    assert ours.amended == theirs.amended == ("algorithm.rate=0.5:0.25",)
    assert ours.trained_s == theirs.trained_s > 0
    train(tmp_path / "child", 5, rate=0.25)
    assert manifest(tmp_path / "child", 5).amended == ours.amended
    assert manifest(tmp_path / "child", 5).trained_s > ours.trained_s
    with pytest.raises(ContractError, match=r"algorithm\.rate: 0\.25 in the run, 0\.5 here"):
        train(tmp_path / "child", 6)


def test_while_the_parent_trains(tmp_path: Path):
    with Run(tmp_path / "parent", every=Every(updates=1), keep=None) as parent:
        parent.restore(x=1)
        parent.boundary(env_steps=1, x=2, metrics={"x": 2})
        parent.boundary(env_steps=2, x=3, metrics={"x": 3})
        parent.finish()
    with Run(tmp_path / "parent", every=Every(updates=1), keep=None) as parent:
        parent.restore(x=1)
        fork(tmp_path / "parent", 1, tmp_path / "child")
        with Run(tmp_path / "child", every=Every(updates=1)) as child:
            assert child.restore(x=1).x == 2
            parent.boundary(env_steps=3, x=4)
            child.boundary(env_steps=2, x=9)

    assert (opened(tmp_path / "parent", 3).snapshot.components["x"].tree, parent.resumed) == (4, True)
    assert opened(tmp_path / "child", 2).snapshot.components["x"].tree == 9


def test_missing_folders_above_the_new_run_are_made(parent: Path, tmp_path: Path):
    fork(parent, 0, tmp_path / "a" / "b" / "child")

    assert names(tmp_path / "a" / "b") == ["child"]


@pytest.mark.parametrize("place", ["weights.safetensors", "environment.safetensors", "MANIFEST.json"])
@pytest.mark.parametrize("kind", ["bit", "byte", "missing"])
def test_a_damaged_parent_leaves_nothing(parent: Path, tmp_path: Path, place: str, kind: str):
    file = parent / "checkpoints" / "step_0000000060" / place
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data if kind == "bit" else data[:-1])
    if kind == "missing":
        file.unlink()
    before = contents(parent)

    with pytest.raises(DamagedError, match=f"step_0000000060.*{place}"):
        fork(parent, 60, tmp_path / "child")

    assert names(tmp_path) == ["parent"]
    assert contents(parent) == before
    fork(parent, 45, tmp_path / "child")  # the others are as good as before


def test_the_messages_about_damage_say_where_and_what_to_do(parent: Path, tmp_path: Path):
    file = parent / "checkpoints" / "step_0000000060" / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedError) as cut:
        fork(parent, 60, tmp_path / "child")
    file.unlink()
    with pytest.raises(DamagedError) as missing:
        fork(parent, 60, tmp_path / "child")

    place = f"{parent}: step_0000000060/weights.safetensors"
    assert str(cut.value) == f"{place}: not what was written. Fork at another step."
    assert str(missing.value) == f"{place}: missing, or removed meanwhile; pin the checkpoint, then fork."


def test_a_checkpoint_of_another_run_is_none_of_this_one(parent: Path, numpy_loop, tmp_path: Path):
    numpy_loop.train(tmp_path / "other", updates=4)
    shutil.rmtree(parent / "checkpoints" / "step_0000000060")
    shutil.copytree(tmp_path / "other" / "checkpoints" / "step_0000000060", parent / "checkpoints" / "step_0000000060")

    with pytest.raises(DamagedError, match=r"step_0000000060: belongs to run [0-9a-f]{32}, not to"):
        fork(parent, 60, tmp_path / "child")


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_something_that_is_there_already_is_left_alone(parent: Path, tmp_path: Path, make: Callable[[Path], object]):
    make(tmp_path / "child")
    with pytest.raises(UsageError) as caught:
        fork(parent, 60, tmp_path / "child")

    assert str(caught.value) == (
        f"{tmp_path}/child: there is something already; give the new run a directory of its own."
    )
    assert names(tmp_path) == ["child", "parent"]
    assert not (tmp_path / "child" / "run.json").exists()


@pytest.mark.parametrize("env_steps", [61, 1234567, -15])
def test_a_step_that_is_not_there_is_told_with_those_that_are(parent: Path, tmp_path: Path, env_steps: int):
    """As `--at` takes them, without marks between thousands."""
    with pytest.raises(NoCheckpointError) as caught:
        fork(parent, env_steps, tmp_path / "child")

    assert str(caught.value) == (
        f"{parent}: no checkpoint at {env_steps} env-steps; there are: 120, 105, 90, 75, 60, 45, 30, 15, 0."
    )
    assert names(tmp_path) == ["parent"]


def test_a_run_without_checkpoints(parent: Path, tmp_path: Path):
    shutil.rmtree(parent / "checkpoints")
    with pytest.raises(NoCheckpointError, match=r"no checkpoint at 60 env-steps; there are: none\.$"):
        fork(parent, 60, tmp_path / "child")


def test_no_run(tmp_path: Path):
    with pytest.raises(NoRunError, match="no such directory"):
        fork(tmp_path / "parent", 60, tmp_path / "child")

    assert names(tmp_path) == []


class Stop(BaseException):
    """Ctrl-C, or anything else, in the middle."""


@pytest.mark.parametrize(
    "place", ["read_history", "_copy_checkpoint", "_copy_metrics", "write_record", "sync_directory"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_fork_leaves_no_run(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, when: str
):
    original = getattr(fork_module, place)

    def interrupted(*arguments: object) -> None:
        if when == "after":
            original(*arguments)
        raise Stop

    monkeypatch.setattr(fork_module, place, interrupted)
    before = contents(parent)
    with pytest.raises(Stop):
        fork(parent, 60, tmp_path / "child")

    assert names(tmp_path) == ["parent"]
    assert contents(parent) == before


def test_the_metrics_of_a_parent_that_lost_them_are_not_made_up(parent: Path, numpy_loop, tmp_path: Path):
    (parent / "metrics.jsonl").unlink()
    fork(parent, 60, tmp_path / "child")

    assert not (tmp_path / "child" / "metrics.jsonl").exists()
    notices = numpy_loop.train(tmp_path / "child").notices
    assert [notice.split(";")[0] for notice in notices] == [
        "metrics.jsonl: has 0 bytes that are not the "
        f"{manifest(tmp_path / 'child', 60).metrics['offset']} which the checkpoint counted"  # type: ignore[index]
    ]


def test_a_place_below_a_file_is_refused(parent: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError) as caught:
        fork(parent, 15, tmp_path / "file" / "x")

    assert str(caught.value) == f"{tmp_path / 'file' / 'x'}: a folder above it is a file; choose another place."
