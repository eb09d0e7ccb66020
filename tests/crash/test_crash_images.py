"""Power loss at any instant: whatever the disk kept of what was not synced, a checkpoint is the one before or the new.

Operations on a simulated disk, then every disk that a crash could leave (`perdure.testing.SimulatedDisk`). Small cases
are tried exhaustively; `test_crash_recovery.py` has sequences. Twins that skip a step must be found by the same check.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.simulated_store import CHECKPOINTS, commit, one, saved_of, seen, step, step_back, store_on, two

from perdure.runs.loading import newest_intact
from perdure.store.filesystem import FileSystem
from perdure.store.local import STAGING_PREFIX, LocalStore
from perdure.testing import Fault, FaultyFileSystem, SimulatedDisk

pytestmark = pytest.mark.usefixtures("syncs")


Act = Callable[[LocalStore], object]


@dataclass
class Case:
    """Something that is interrupted."""

    prepare: Act
    """What was there before, durably."""
    act: Act
    """What the power loss interrupts."""
    damaged: str | None = None
    """A checkpoint that was damaged before."""


def second_sharing(store: LocalStore) -> None:
    commit(store, 2, saved_of(store, 1))


def nothing(store: LocalStore) -> None:
    pass


CASES = {
    "first save": Case(nothing, one),
    "second save": Case(one, lambda store: commit(store, 2)),
    "second save, sharing files": Case(one, second_sharing),
    "retention": Case(two, lambda store: store.remove(step(1))),
    "a damaged checkpoint is set aside": Case(two, step_back, damaged=step(2)),
}


def check(case: Case, through: Callable[[FileSystem], FileSystem] = lambda disk: disk) -> int:
    """Crashes a case at every instant; returns the number of different disks that were looked at."""
    disk = SimulatedDisk()
    case.prepare(store_on(disk))
    if case.damaged is not None:
        disk.damage(CHECKPOINTS / case.damaged / "moving.safetensors", 50)
    mark, before = len(disk.operations), seen(disk)
    files = _files_below(disk, case.damaged)
    case.act(store_on(through(disk)))
    after, number = seen(disk), 0

    assert before != after
    for image in disk.crash_images(mark, disk.most_open(mark)):
        number += 1
        found = seen(image)
        assert found in (before, after), f"a power loss leaves {found}, neither {before} nor {after}"
        assert _files_below(image, case.damaged) == files
    for image in disk.images_now(disk.most_open(mark)):
        assert seen(image) == after, "not durable after the call had returned"
    return number


def _files_below(disk: SimulatedDisk, name: str | None) -> dict[str, bytes | None]:
    """The files of a checkpoint, wherever it stands: nothing of a damaged one may be lost."""
    contents = disk.contents().items()
    return {Path(path).name: data for path, data in contents if name is not None and Path(path).parent.name == name}


@pytest.mark.parametrize("case", CASES)
def test_a_power_loss_leaves_what_was_before_or_what_is_new(case: str) -> None:
    """At every instant, for every subset of what was not synced."""
    assert check(CASES[case]) > 1


def test_a_power_loss_in_a_save_that_copies_because_there_are_no_links() -> None:
    assert check(CASES["second save, sharing files"], NoLinks) > 1


def test_shared_files_are_shared_in_these_cases() -> None:
    """The cases above exercise what they claim: links are made, or else copies."""
    for through, linked in ((lambda disk: disk, True), (NoLinks, False)):
        disk = SimulatedDisk()
        one(store_on(disk))
        mark = len(disk.operations)
        second_sharing(store_on(through(disk)))
        entered = [operation for operation in disk.operations[mark:] if operation.kind == "enter"]
        children = [operation.child for operation in entered if operation.name == "fixed.safetensors"]
        written = {operation.node for operation in disk.operations[mark:] if operation.kind == "write"}

        assert len(children) == 1
        assert (children[0] not in written) == linked


def test_keeping_one_leaves_one_at_any_instant() -> None:
    """CASES 12: save, then prune; at least one intact checkpoint, and the new one once `save` has returned."""
    disk = SimulatedDisk()
    one(store_on(disk))
    mark = len(disk.operations)
    second_sharing(store_on(disk))
    for image in disk.images_now(disk.most_open(mark)):
        assert newest_intact(store_on(image), "/run").opened.name == step(2)
    committed = len(disk.operations)
    store_on(disk).remove(step(1))

    images = list(disk.crash_images(mark, disk.most_open(mark)))
    for image in images:
        found = newest_intact(store_on(image), "/run")
        assert found.damage == {}
    for image in disk.crash_images(committed, disk.most_open(mark)):
        assert newest_intact(store_on(image), "/run").opened.name == step(2)
    assert {tuple(seen(image)) for image in images} == {(step(1),), (step(1), step(2)), (step(2),)}


# Twins


class Through(FaultyFileSystem):
    """A file system with a fault of its own over the simulated disk."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner, Fault(None))


class NoLinks(Through):
    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no links here")


class RenamesBeforeSyncingTheFiles(Through):
    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.late: list[Path] = []

    def sync_file(self, path: Path) -> None:
        self.late.append(path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        for path in self.late:
            super().sync_file(target / path.name)
        self.late.clear()


class NoSyncOfTheDirectory(Through):
    def sync_directory(self, path: Path) -> None:
        if not path.name.startswith(STAGING_PREFIX):
            super().sync_directory(path)


class NoSyncOfTheParent(Through):
    def sync_directory(self, path: Path) -> None:
        if path != CHECKPOINTS:
            super().sync_directory(path)


TWINS: dict[str, tuple[type[Through], str]] = {
    "renames before syncing the files": (RenamesBeforeSyncingTheFiles, "second save"),
    "does not sync the directory": (NoSyncOfTheDirectory, "second save"),
    "links without syncing the directory": (NoSyncOfTheDirectory, "second save, sharing files"),
    "does not sync the parent": (NoSyncOfTheParent, "second save"),
    "does not sync the parent of what is retained away": (NoSyncOfTheParent, "retention"),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_that_skips_a_step_is_found(twin: str) -> None:
    """By the same check."""
    through, case = TWINS[twin]

    with pytest.raises(AssertionError, match=r"a power loss leaves|not durable"):
        check(CASES[case], through)


def test_a_twin_that_removes_the_old_before_the_new_is_durable_is_found() -> None:
    """Retention first, the sync of the new one's name later."""
    disk = SimulatedDisk()
    one(store_on(disk))
    mark = len(disk.operations)
    store = store_on(NoSyncOfTheParent(disk))
    commit(store, 2)
    store.remove(step(1))
    disk.sync_directory(CHECKPOINTS)

    assert any(not seen(image) for image in disk.crash_images(mark, disk.most_open(mark)))
