"""Power loss at any instant: whatever the disk kept of what was not synced, a checkpoint is the one before or the new.

Operations on a simulated disk, then every disk that a crash could leave (`perdure.testing.SimulatedDisk`). Small cases
are tried exhaustively, sequences by Hypothesis. Twins that skip one step must be found by the same check.
"""

import errno
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, Saved, save
from perdure.errors import DamagedError
from perdure.runs.loading import newest_intact
from perdure.store.filesystem import FileSystem
from perdure.store.local import STAGING_PREFIX, LocalStore
from perdure.testing import Fault, FaultyFileSystem, SimulatedDisk
from perdure.tree.leaves import Array
from perdure.tree.snapshot import Component, Snapshot

CHECKPOINTS, ASIDE = Path("/run/checkpoints"), Path("/run/damaged")
MODES = ("as late as allowed", "at once")


class Syncs:
    """Runs the syncs of files at a fixed moment instead of in threads: what threads do lies in between."""

    late = False

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, do: Callable[..., None], *arguments: Any) -> Future[None]:
        future = Waiting(do, *arguments)
        if not self.late:
            future.run()
        return future

    def shutdown(self) -> None:
        pass


class Waiting(Future[None]):
    """A call that is made when somebody asks for its result."""

    def __init__(self, do: Callable[..., None], *arguments: Any) -> None:
        super().__init__()
        self._call = lambda: do(*arguments)

    def run(self) -> None:
        if not self.done():
            try:
                self.set_result(self._call())
            except OSError as error:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> None:
        self.run()
        return super().result(timeout)


@pytest.fixture(params=MODES, autouse=True)
def syncs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both extremes of when files are synced."""
    kind = type("SyncsNow", (Syncs,), {"late": request.param == MODES[0]})
    monkeypatch.setattr("perdure.store.local.ThreadPoolExecutor", kind)
    return request.param


def store_on(filesystem: FileSystem) -> LocalStore:
    return LocalStore(CHECKPOINTS, ASIDE, filesystem)


def step(number: int) -> str:
    return f"step_{number:010d}"


def commit(store: LocalStore, number: int, previous: Saved | None = None, *, changing: float | None = None) -> Saved:
    """A checkpoint of two components, of which the first is always the same."""
    value = float(number if changing is None else changing)
    components = {
        "fixed": Component("dict", {"w": Array(np.arange(3.0))}),
        "moving": Component("dict", {"w": Array(np.full(2, value)), "count": number}),
    }
    return save(store, step(number), Snapshot(components, number, number, number), About(), previous)


Seen = dict[str, str]


def seen(filesystem: FileSystem) -> Seen:
    """What a reader finds: each checkpoint's state digest, or that it is damaged."""
    store, found = store_on(filesystem), {}
    for name in store.names():
        try:
            found[name] = open_checkpoint(store, name).manifest.state_digest
        except DamagedError as error:
            found[name] = f"damaged: {error}"
    return found


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


def saved_of(store: LocalStore, number: int) -> Saved:
    """What `save` said of a checkpoint that `commit` made: read off a twin of it in another store."""
    return commit(store_on(SimulatedDisk()), number)


def keep_one(store: LocalStore) -> None:
    commit(store, 2, saved_of(store, 1))
    store.remove(step(1))


def step_back(store: LocalStore) -> None:
    """What a resume does with a newest checkpoint that is damaged."""
    found = newest_intact(store, "/run")
    for name in found.damage:
        store.set_aside(name)
    store.remove_leftovers()


def nothing(store: LocalStore) -> None:
    pass


def one(store: LocalStore) -> None:
    commit(store, 1)


def two(store: LocalStore) -> None:
    commit(store, 2, commit(store, 1))


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


# Recovery


def save_and_prune(disk: FileSystem) -> None:
    """A third checkpoint that shares a file, then the first one goes."""
    store = store_on(disk)
    commit(store, 3, saved_of(store, 2))
    store.remove(step(1))


def histories() -> list[Seen]:
    """What there is before, between and after."""
    disk = SimulatedDisk()
    two(store_on(disk))
    before = seen(disk)
    save_and_prune(disk)
    after = seen(disk)
    return [before, {**before, **after}, after]


def recover(disk: FileSystem) -> None:
    """What the next holder of the lock does before it goes on."""
    step_back(store_on(disk))
    assert store_on(disk).remove_leftovers() == []


def check_recovery(disk: SimulatedDisk, mark: int, allowed: list[Seen], most_undecided: int) -> int:
    """Recovers a disk and crashes that at every instant, recovers again, and goes on."""
    before, number = seen(disk), 0
    recover(disk)
    assert seen(disk) == before
    for image in disk.crash_images(mark, most_undecided):
        number += 1
        assert seen(image) in allowed
        recover(image)
        assert newest_intact(store_on(image), "/run").damage == {}
        commit(store_on(image), 4)
    return number


def check_recoveries(fault: Fault, most_undecided: int, every: int) -> int:
    """A writer is killed at one call: recovered at once, or after a power loss (every so-manieth of its images)."""
    disk = SimulatedDisk()
    two(store_on(disk))
    mark = len(disk.operations)
    with suppress(OSError):
        save_and_prune(FaultyFileSystem(disk, fault))
    number = 0
    for image in list(disk.crash_images(mark, most_undecided))[::every]:
        assert seen(image) in histories()
        number += check_recovery(image, 0, [seen(image)], most_undecided)
    return number + check_recovery(disk, mark, histories(), most_undecided)


def test_a_crash_in_the_recovery_from_a_kill_loses_nothing() -> None:
    """Images of images, for a writer killed at every call: a sample of them."""
    number = sum(check_recoveries(fault, 4, every=15) for fault in Fault.at_each_call(errno.EIO, lasting=True))

    assert number > 100


@pytest.mark.slow
def test_any_crash_in_the_recovery_from_any_crash_loses_nothing() -> None:
    """The same, of every image, with more that is undecided."""
    for fault in Fault.at_each_call(errno.EIO, lasting=True):
        check_recoveries(fault, 5, every=1)


# Sequences

CALLS = ("save", "save sharing", "prune", "damage", "killed save", "killed prune", "recover")


@dataclass
class World:
    """A store, what its user knows of it, and a power loss after each step."""

    disk: SimulatedDisk
    most_undecided: int
    number: int = 0
    saved: Saved | None = None

    def do(self, call: str, at: int) -> None:
        """Takes one step and crashes it at every instant."""
        mark, before = len(self.disk.operations), seen(self.disk)
        getattr(self, "_" + call.replace(" ", "_"))(at)
        after = seen(self.disk)
        if call == "damage":
            return
        for image in self.disk.crash_images(mark, self.most_undecided):
            found = seen(image)
            told = f"{call}: a power loss leaves {found}, neither {before} nor {after}"
            assert _intact(found) in (_intact(before), _intact(after)), told
            assert found.items() <= (before | after).items(), told
        for image in self.disk.images_now(self.most_undecided):
            assert seen(image) == after, f"{call} has returned, and is not durable"

    def _save(self, _: int, *, sharing: bool = False, fault: Fault | None = None) -> None:
        self.number += 1
        store = store_on(self.disk if fault is None else FaultyFileSystem(self.disk, fault))
        self.saved = commit(store, self.number, self.saved if sharing else None)

    def _save_sharing(self, at: int) -> None:
        self._save(at, sharing=True)

    def _killed_save(self, at: int) -> None:
        with suppress(OSError):
            self._save(at, sharing=True, fault=Fault(at, lasting=True))
        self._recover(at)

    def _prune(self, at: int, fault: Fault | None = None) -> None:
        store = store_on(self.disk if fault is None else FaultyFileSystem(self.disk, fault))
        older = store.names()[:-1]
        if older and not seen(self.disk)[store.names()[-1]].startswith("damaged"):
            store.remove(older[at % len(older)])

    def _killed_prune(self, at: int) -> None:
        with suppress(OSError):
            self._prune(at, Fault(at % 4, lasting=True))
        self._recover(at)

    def _damage(self, at: int) -> None:
        names = store_on(self.disk).names()
        if len(names) > 1:
            self.disk.damage(CHECKPOINTS / names[-1] / ("moving.safetensors", "MANIFEST.json")[at % 2], at)

    def _recover(self, _: int) -> None:
        """A new process: it knows nothing of what was saved before."""
        self.saved = None
        store = store_on(self.disk)
        if store.names():
            step_back(store)
        store.remove_leftovers()


def _intact(found: Seen) -> Seen:
    return {name: state for name, state in found.items() if not state.startswith("damaged")}


Steps = st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 20)), min_size=1, max_size=6)


def run_sequence(steps: Iterable[tuple[str, int]], most_undecided: int) -> None:
    world = World(SimulatedDisk(), most_undecided)
    world.do("save", 0)
    for call, at in steps:
        world.do(call, at)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=Steps)
def test_any_sequence_survives_a_power_loss_at_any_instant(steps: list[tuple[str, int]]) -> None:
    run_sequence(steps, most_undecided=4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=Steps)
def test_any_sequence_survives_a_power_loss_more_examples(steps: list[tuple[str, int]]) -> None:
    run_sequence(steps, most_undecided=7)
