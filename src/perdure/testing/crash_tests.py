"""What a store's directory holds after a power loss at any instant, as a set of tests.

```python
class TestMyStoreInACrash(StoreCrashTests):
    def store_on(self, filesystem):
        return MyStore(Path("/run"), filesystem)
```

For stores that reach the disk through `perdure.store.filesystem.FileSystem` only.
"""

# ruff: noqa: S101 - assertions are what a test is made of

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from perdure.store.filesystem import FileSystem
from perdure.store.store import Store
from perdure.testing.faults import Fault, FaultyFileSystem
from perdure.testing.simulated_disk import SimulatedDisk
from perdure.testing.store_tests import commit, content

Content = dict[str, dict[str, bytes]]

OLD: Mapping[str, bytes] = {"x": b"old x", "y": b"shared"}
NEW: Mapping[str, bytes] = {"x": b"new x", "y": b"shared"}


class StoreCrashTests:
    """What `perdure.store.store` promises across a power loss or a kill: before or after, whole, never a mixture."""

    def store_on(self, filesystem: FileSystem) -> Store:
        """A store at a fixed place of this file system; called anew for every reader and every life of a writer."""
        raise NotImplementedError("StoreCrashTests: build the store in `store_on`")

    def test_a_crash_in_the_first_commit(self) -> None:
        """Nothing, or the entry."""
        self.check(lambda store: None, lambda store: commit(store, "a", OLD))

    def test_a_crash_in_a_later_commit(self) -> None:
        """The entries before are not touched."""
        self.check(lambda store: commit(store, "a", OLD), lambda store: commit(store, "b", NEW))

    def test_a_crash_in_a_commit_that_takes_a_file_over(self) -> None:
        """The shared file is whole in both."""
        self.check(lambda store: commit(store, "a", OLD), _commit_sharing)

    def test_a_crash_in_a_removal(self) -> None:
        """There whole, or gone; gone for good once `remove` has returned."""
        self.check(_commit_two, lambda store: store.remove("a"))

    def test_a_crash_while_an_entry_is_set_aside(self) -> None:
        """It has one name or the other."""
        self.check(_commit_two, lambda store: store.set_aside("b"))

    def test_keeping_one_a_crash_leaves_one(self) -> None:
        """Commit, then remove the one before: at least one whole entry at any instant."""

        def replace(store: Store) -> None:
            commit(store, "b", NEW)
            store.remove("a")

        both: Content = {"a": dict(OLD), "b": dict(NEW)}
        self.check(lambda store: commit(store, "a", OLD), replace, between=[both])

    def test_a_power_loss_after_a_kill_and_a_recovery(self) -> None:
        """What a killed writer had not synced can be lost later: its successor may not build on it."""
        for name, do in _CALLS.items():
            for fault in Fault.at_each_call(errno.EIO, lasting=True):
                disk = SimulatedDisk()
                _commit_two(self.store_on(disk))
                mark = len(disk.operations)
                before = content(self.store_on(disk))
                with suppress(OSError):
                    do(self.store_on(FaultyFileSystem(disk, fault)))
                killed = content(self.store_on(disk))
                self.store_on(disk).remove_leftovers()

                place = f"{name}, killed: {fault}"
                assert content(self.store_on(disk)) == killed, place
                self.check_images(disk.crash_images(mark), [before, killed], place)
                self.check_images(disk.images_now(), [killed], f"{place}, recovered")

    def test_a_power_loss_after_a_call_that_failed(self) -> None:
        """An error is no promise that nothing will be there; but what is there is whole."""
        for name, do in _CALLS.items():
            done = SimulatedDisk()
            _commit_two(self.store_on(done))
            do(self.store_on(done))
            for fault in Fault.at_each_call(errno.EIO):
                disk = SimulatedDisk()
                _commit_two(self.store_on(disk))
                mark, before = len(disk.operations), content(self.store_on(disk))
                with suppress(OSError):
                    do(self.store_on(FaultyFileSystem(disk, fault)))

                allowed = [before, content(self.store_on(done))]
                self.check_images(disk.crash_images(mark), allowed, f"{name}, failed: {fault}")

    def test_a_crash_in_a_recovery(self) -> None:
        """Leftovers are removed a second time; entries stay."""
        for fault in Fault.at_each_call(errno.EIO, lasting=True):
            disk = SimulatedDisk()
            _commit_two(self.store_on(disk))
            with suppress(OSError):
                _commit_sharing(self.store_on(FaultyFileSystem(disk, fault)), "c")
            for first in disk.images_now(most_undecided=3):
                mark, before = len(first.operations), content(self.store_on(first))
                self.store_on(first).remove_leftovers()
                for second in first.crash_images(mark, most_undecided=3):
                    self.store_on(second).remove_leftovers()
                    assert content(self.store_on(second)) == before, fault
                    assert self.store_on(second).remove_leftovers() == [], fault

    def check(
        self, prepare: Callable[[Store], object], do: Callable[[Store], object], between: list[Content] | None = None
    ) -> None:
        """Crashes `do`, at every instant and after it.

        Args:
            prepare: builds what is there before.
            do: calls the store; when it returns, its effect must be durable.
            between: what may be there in the middle, if `do` is more than one step.
        """
        disk = SimulatedDisk()
        prepare(self.store_on(disk))
        mark, before = len(disk.operations), content(self.store_on(disk))
        do(self.store_on(disk))
        after = content(self.store_on(disk))

        assert before != after
        self.check_images(disk.crash_images(mark), [before, *(between or []), after], "at some instant")
        self.check_images(disk.images_now(), [after], "after the call returned")

    def check_images(self, images: Iterator[SimulatedDisk], allowed: list[Content], place: str) -> None:
        """Each image shows one of what is allowed, and takes a new entry once leftovers are removed."""
        for image in images:
            store = self.store_on(image)
            found = content(store)
            assert found in allowed, f"{place}: a power loss leaves {found}; allowed: {allowed}"
            store.remove_leftovers()
            commit(store, "z", NEW)
            assert content(store) == {**found, "z": NEW}, place


def _commit_two(store: Store) -> None:
    commit(store, "a", OLD)
    commit(store, "b", NEW)


def _commit_sharing(store: Store, name: str = "b") -> None:
    with store.stage(name) as staging:
        staging.write("x", [NEW["x"]])
        staging.reuse("y", "a")
        staging.commit()


_CALLS: dict[str, Callable[[Store], object]] = {
    "commit": lambda store: commit(store, "c", NEW),
    "commit with a shared file": lambda store: _commit_sharing(store, "c"),
    "remove": lambda store: store.remove("a"),
    "set_aside": lambda store: store.set_aside("b"),
}
