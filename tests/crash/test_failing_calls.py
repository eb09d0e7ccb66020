"""The n-th call fails, for every n: the old checkpoint loads, the error is typed and surfaces, and the next call works.

On the real file system, through `perdure.testing.FaultyFileSystem`. EINTR is not among the errors: Python repeats
interrupted system calls (PEP 475), so the port never raises it.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, Saved, save
from perdure.errors import CommitError, DamagedError, PerdureError
from perdure.runs.lineage import read_lineage
from perdure.store import local
from perdure.store.filesystem import FileSystem
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStore
from perdure.testing import Fault, FaultyFileSystem, FaultyStore
from perdure.tree.leaves import Array
from perdure.tree.snapshot import Component, Snapshot

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EROFS", "EACCES")}


def descriptors() -> set[str]:
    """What this process has open, without the listing itself."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(f"{link.name} {link.readlink()}")
    return {entry for entry in found if "/proc/" not in entry}


def snapshot_of(number: int) -> Snapshot:
    components = {
        "fixed": Component("dict", {"w": Array(np.arange(30.0))}),
        "moving": Component("dict", {"w": Array(np.full(20, float(number))), "count": number}),
    }
    return Snapshot(components, number, number, number)


def store_at(path: Path, filesystem: FileSystem | None = None) -> LocalStore:
    return LocalStore(path / "checkpoints", path / "damaged", filesystem)


def commit(store: LocalStore, number: int, previous: Saved | None = None) -> Saved:
    return save(store, f"step_{number:010d}", snapshot_of(number), About(), previous)


def failure(do: Callable[[], object]) -> OSError | PerdureError | None:
    """What a call failed with; any other error comes out."""
    try:
        do()
    except (OSError, PerdureError) as error:
        return error
    return None


def states(path: Path) -> dict[str, str]:
    """Every checkpoint's state; raises if one is damaged."""
    store = store_at(path)
    return {name: open_checkpoint(store, name).manifest.state_digest for name in store.names()}


def leftovers(path: Path) -> list[str]:
    return sorted(entry.name for entry in (path / "checkpoints").iterdir() if entry.name.startswith("."))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "ever after"])
@pytest.mark.parametrize("name", ERRORS)
def test_a_save_fails_as_a_whole_whatever_call_fails(tmp_path: Path, name: str, lasting: bool) -> None:
    """CommitError, the checkpoint before untouched, no descriptor left, nothing left that is not removed next time."""
    first = commit(store_at(tmp_path), 1)
    before, open_before = states(tmp_path), descriptors()
    for fault in Fault.at_each_call(ERRORS[name], lasting=lasting):
        store = store_at(tmp_path, FaultyFileSystem(FileSystem(), fault))
        error = failure(lambda store=store: commit(store, 2, first))
        assert (error is not None) == fault.fired, f"{fault}: nobody was told"
        if error is not None:
            assert isinstance(error, CommitError)
            assert os.strerror(ERRORS[name]) in str(error)
            assert isinstance(error.__cause__, OSError)
            assert error.__cause__.errno == ERRORS[name]
        assert descriptors() == open_before, fault
        if fault.fired and not lasting:
            assert states(tmp_path) == before, fault
            # What was renamed and could not be made durable stays whole until the next holder of the lock.
            assert len(leftovers(tmp_path)) == ("rename" in fault.calls and "(sync_directory)" in str(fault)), fault
        taken_over = store_at(tmp_path)
        taken_over.remove_leftovers()
        assert leftovers(tmp_path) == []
        assert before.items() <= states(tmp_path).items()
        if "step_0000000002" not in taken_over.names():
            commit(taken_over, 2, first)
        assert len(states(tmp_path)) == 2
        taken_over.remove("step_0000000002")


def test_a_link_that_is_refused_as_the_user_s_right_is_a_copy(tmp_path: Path) -> None:
    """EPERM, EXDEV and the like say that there are no links here: that is no failure."""
    first = commit(store_at(tmp_path), 1)
    for error in local.NO_LINKS:
        probe = Fault(None)
        commit(store_at(tmp_path, FaultyFileSystem(FileSystem(), probe)), 2, first)
        store_at(tmp_path).remove("step_0000000002")
        fault = Fault(probe.calls.index("link"), error)
        commit(store_at(tmp_path, FaultyFileSystem(FileSystem(), fault)), 2, first)

        assert fault.fired
        inodes = {(tmp_path / "checkpoints" / name / "fixed.safetensors").stat().st_ino for name in states(tmp_path)}
        assert len(inodes) == 2
        store_at(tmp_path).remove("step_0000000002")


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it was given: the rest follows, and the file is whole."""
    write, read = os.writev, os.readv
    monkeypatch.setattr(os, "writev", lambda fd, buffers: write(fd, [buffers[0][: max(1, buffers[0].nbytes // 2)]]))
    monkeypatch.setattr(os, "readv", lambda fd, buffers: read(fd, [buffers[0][: max(1, buffers[0].nbytes // 3)]]))

    commit(store_at(tmp_path), 1)

    in_pieces = states(tmp_path)
    monkeypatch.undo()
    commit(store_at(tmp_path / "other"), 1)
    assert in_pieces == states(tmp_path) == states(tmp_path / "other")


Act = Callable[[LocalStore], object]
ACTS: dict[str, Act] = {
    "retention": lambda store: store.remove("step_0000000001"),
    "set_aside": lambda store: store.set_aside("step_0000000003"),
    "leftover cleaning": lambda store: store.remove_leftovers(),
}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "ever after"])
@pytest.mark.parametrize("act", ACTS)
def test_tidying_up_loses_nothing_whatever_call_fails(tmp_path: Path, act: str, lasting: bool) -> None:
    """Retention, setting aside and cleaning: an OSError with its number, every other checkpoint intact."""
    for at, fault in enumerate(Fault.at_each_call(*ERRORS.values(), lasting=lasting)):
        path = tmp_path / str(at)
        for number in (1, 2, 3):
            commit(store_at(path), number)
        (path / "checkpoints" / ".staging.00").mkdir()
        (path / "checkpoints" / ".staging.00" / "a.safetensors").write_bytes(b"half")
        before, open_before = states(path), descriptors()
        store = store_at(path, FaultyFileSystem(FileSystem(), fault))
        error = failure(lambda store=store: ACTS[act](store))
        assert (error is not None) == fault.fired, f"{fault}: nobody was told"
        assert error is None or (isinstance(error, OSError) and error.errno in ERRORS.values())

        assert descriptors() == open_before, fault
        assert states(path)["step_0000000002"] == before["step_0000000002"]
        assert states(path).items() <= before.items()
        store_at(path).remove_leftovers()
        assert leftovers(path) == []
        if "step_0000000003" not in states(path) and act != "set_aside":
            raise AssertionError(f"{fault}: the newest is gone")
        assert (path / "damaged" / "step_0000000003").exists() == ("step_0000000003" not in states(path))
        commit(store_at(path), 4)


@contextmanager
def faulty(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> Iterator[None]:
    """All that runs do to checkpoints goes through a faulty file system."""
    with monkeypatch.context() as patch:
        patch.setattr(local, "FileSystem", lambda: FaultyFileSystem(FileSystem(), fault))
        yield


def train(path: Path, until: int, *, background: bool = False) -> np.ndarray:
    """Counts up; every boundary is saved."""
    every = perdure.Every(updates=1)
    with perdure.Run(path, every=every, keep=perdure.Keep(last=2), background=background) as run:
        value = run.restore(value=np.zeros(100)).value
        while run.env_steps < until:
            value = value + 1
            run.boundary(env_steps=run.env_steps + 1, value=value, metrics={"sum": float(value.sum())})
        run.finish(value=value)
    return value


@pytest.mark.full
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "ever after"])
def test_a_resume_survives_whatever_call_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool) -> None:
    """Damage to step back from, leftovers to remove: it fails and says why, or goes on; the next one is exact."""
    train(tmp_path / "first", 2)
    file = tmp_path / "first" / "checkpoints" / "step_0000000002" / "value.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    (tmp_path / "first" / "checkpoints" / ".staging.00").mkdir()
    open_before = descriptors()
    for at, fault in enumerate(Fault.at_each_call(errno.EIO, lasting=lasting)):
        path = Path(shutil.copytree(tmp_path / "first", tmp_path / str(at)))
        with faulty(monkeypatch, fault):
            error = failure(lambda path=path: train(path, 3))
        assert error is None or os.strerror(errno.EIO) in str(error), fault

        assert descriptors() == open_before, fault
        assert (train(path, 4) == np.full(100, 4.0)).all(), fault
        assert [row["env_steps"] for row in perdure.Run(path).metrics_rows()] == [1, 2, 3, 4], fault
        read_lineage(path / "lineage.jsonl")
        assert leftovers(path) == []


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_a_run_tells_each_failed_commit_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """The error comes out of a boundary or of `finish`, as CommitError; retention that fails stops nothing."""
    told = set()
    for at, fault in enumerate(Fault.at_each_call(errno.ENOSPC)):
        path, run_errors = tmp_path / str(at), []
        run = perdure.Run(path, every=perdure.Every(updates=1), keep=perdure.Keep(last=1), background=background)
        value = run.restore(value=np.zeros(10)).value
        with faulty(monkeypatch, fault):
            for number in (1, 2):
                value = np.full(10, float(number))
                while run.env_steps < number:
                    try:
                        run.boundary(env_steps=number, value=value)
                    except CommitError as error:
                        run_errors.append(error)
        try:
            run.finish(value=value)
        except CommitError as error:
            run_errors.append(error)
            run.finish(value=value)

        call = str(fault).partition("(")[2].rstrip(")")
        told.add((call, len(run_errors)))
        assert len(run_errors) <= 1, fault
        newest = path / "checkpoints" / "step_0000000002"
        assert (perdure.read(newest)["value"] == 2).all(), fault
        assert len(leftovers(path)) <= 1
        events = [event["event"] for event in read_lineage(path / "lineage.jsonl")]
        assert run_errors or not fault.fired or "retention_failed" in events, f"{fault}: nobody was told"
    assert {(call, number) for call, number in told if call in ("write_file", "sync_file")} == {
        ("write_file", 1),
        ("sync_file", 1),
    }


def test_an_error_in_the_background_comes_out_of_the_next_boundary_or_of_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and it is logged at once for scripts that never ask."""
    for at, ask in enumerate(("boundary", "finish", "close")):
        run = perdure.Run(tmp_path / str(at), every=perdure.Every(updates=1))
        run.restore(value=0)
        fault = Fault(0, errno.ENOSPC, lasting=True)
        with faulty(monkeypatch, fault):
            run.boundary(env_steps=1, value=1)
            while run._opened("test").committer._writer.is_busy:
                pass
        with pytest.raises(CommitError, match="step_0000000001 was not committed"):
            _ask(run, ask)
        if ask != "close":
            run.finish(env_steps=3, value=3)
            assert perdure.read(tmp_path / str(at) / "checkpoints" / "step_0000000003")["value"] == 3
    assert caplog.text.count("a checkpoint failed in the background") == 3


def _ask(run: perdure.Run, what: str) -> None:
    match what:
        case "boundary":
            run.boundary(env_steps=2, value=2)
        case "finish":
            run.finish(value=1)
        case _:
            run.close()


def test_a_faulty_store_shows_what_a_user_of_stores_must_bear() -> None:
    """The same on a store's own calls, for authors of stores: a commit error, the entry before untouched."""
    for fault in Fault.at_each_call(errno.EIO):
        inner = MemoryStore()
        first = save(inner, "a", snapshot_of(1), About())
        try:
            save(FaultyStore(inner, fault), "b", snapshot_of(2), About(), first)
        except CommitError:
            assert fault.fired
            assert inner.names() == ["a"]
        else:
            assert not fault.fired
            assert inner.names() == ["a", "b"]
        open_checkpoint(inner, "a")
        for reading in Fault.at_each_call(errno.EIO):
            with suppress(DamagedError):
                open_checkpoint(FaultyStore(inner, reading), "a")
                assert not reading.fired


def test_a_lock_that_a_full_disk_refuses_is_held_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", 1)
    open_before = descriptors()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            train(tmp_path / "run", 2)

    assert descriptors() == open_before
    with (tmp_path / "run" / ".writer.lock").open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    train(tmp_path / "run", 2)
