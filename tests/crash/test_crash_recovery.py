"""Power loss in what follows a crash: in the recovery from it, and anywhere in any sequence of calls."""

import errno
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.crash.simulated_store import CHECKPOINTS, Seen, commit, saved_of, seen, step, step_back, store_on, two

from perdure.checkpoint.save import Saved
from perdure.runs.loading import newest_intact
from perdure.store.filesystem import FileSystem
from perdure.testing import Fault, FaultyFileSystem, SimulatedDisk

pytestmark = pytest.mark.usefixtures("syncs")


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


@pytest.mark.full
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=Steps)
def test_any_sequence_survives_a_power_loss_at_any_instant(steps: list[tuple[str, int]]) -> None:
    run_sequence(steps, most_undecided=4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=Steps)
def test_any_sequence_survives_a_power_loss_more_examples(steps: list[tuple[str, int]]) -> None:
    run_sequence(steps, most_undecided=7)
