"""The crash tests of stores: the local store passes them, stores that skip a step do not."""

import inspect
from pathlib import Path

import pytest

from perdure.store.filesystem import FileSystem
from perdure.store.local import REMOVED_PREFIX, STAGING_PREFIX, LocalStaging, LocalStore
from perdure.store.store import Store
from perdure.testing import Fault, FaultyFileSystem, StoreCrashTests

CHECKPOINTS, ASIDE = Path("/run/checkpoints"), Path("/run/damaged")


class TestLocalStoreInACrash(StoreCrashTests):
    def store_on(self, filesystem: FileSystem) -> Store:
        return LocalStore(CHECKPOINTS, ASIDE, filesystem)


class TestLocalStoreWithoutLinksInACrash(StoreCrashTests):
    def store_on(self, filesystem: FileSystem) -> Store:
        return LocalStore(CHECKPOINTS, ASIDE, NoLinks(filesystem))


class Through(FaultyFileSystem):
    """Another file system with a fault of its own."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner, Fault(None))


class NoLinks(Through):
    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(1, "no links here")


class RenamesFirst(Through):
    """The directory gets its final name, then its files are synced."""

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


class NoSyncOfFiles(Through):
    def sync_file(self, path: Path) -> None:
        pass


class NoSyncOfTheDirectory(Through):
    def sync_directory(self, path: Path) -> None:
        if not path.name.startswith(STAGING_PREFIX):
            super().sync_directory(path)


class NoSyncOfTheParent(Through):
    def sync_directory(self, path: Path) -> None:
        if path != CHECKPOINTS:
            super().sync_directory(path)


class RemovesFileByFile(LocalStore):
    def remove(self, name: str) -> None:
        self._filesystem.remove_tree(self._directory / name)
        self._filesystem.sync_directory(self._directory)


class RemovesBeforeTheRenameIsDurable(Through):
    """The entry is renamed away and unlinked; its new name is not synced in between."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.removing = False

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.removing = target.name.startswith(REMOVED_PREFIX)

    def sync_directory(self, path: Path) -> None:
        if not self.removing:
            super().sync_directory(path)

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(path)
        self.removing = False
        super().sync_directory(path.parent)


class RemovesLeftoversUnsynced(LocalStore):
    """Leftovers are unlinked before it is sure that they are leftovers."""

    def remove_leftovers(self) -> list[str]:
        leftovers = [name for name in self._filesystem.list_directory(self._directory) if name.startswith(".")]
        for name in leftovers:
            self._filesystem.remove_tree(self._directory / name)
        return leftovers


class UnlinksWhatItTookBack(LocalStore):
    """After a failed sync of the parent, the files of the entry that was taken back are removed."""

    def stage(self, name: str) -> LocalStaging:
        staging = super().stage(name)
        commit = staging.commit

        def unlinking() -> None:
            try:
                commit()
            except OSError:
                staging._stays_whole = False
                raise

        setattr(staging, "commit", unlinking)  # noqa: B010 - a twin of this one object
        return staging


class CopiesAside(LocalStore):
    """Damaged entries are copied and then removed file by file."""

    def set_aside(self, name: str) -> str:
        self._filesystem.make_directory(self._aside / name)
        for file in self.files(name):
            self._filesystem.link(self._directory / name / file, self._aside / name / file)
        self._filesystem.sync_directory(self._aside / name)
        self._filesystem.remove_tree(self._directory / name)
        self._filesystem.sync_directory(self._directory)
        return str(self._aside / name)


COMMIT, SHARE = "test_a_crash_in_a_later_commit", "test_a_crash_in_a_commit_that_takes_a_file_over"
REMOVE = "test_a_crash_in_a_removal"
TWINS: dict[str, tuple[type[Through] | type[LocalStore], str]] = {
    "renames before syncing the files": (RenamesFirst, COMMIT),
    "never syncs the files": (NoSyncOfFiles, COMMIT),
    "does not sync the directory": (NoSyncOfTheDirectory, COMMIT),
    "links without syncing the directory": (NoSyncOfTheDirectory, SHARE),
    "does not sync the parent": (NoSyncOfTheParent, COMMIT),
    "does not sync the parent of what is removed": (NoSyncOfTheParent, REMOVE),
    "does not sync the parent and removes the one before": (NoSyncOfTheParent, "test_keeping_one_a_crash_leaves_one"),
    "removes file by file": (RemovesFileByFile, REMOVE),
    "unlinks before the new name is durable": (RemovesBeforeTheRenameIsDurable, REMOVE),
    "removes leftovers that may come back": (
        RemovesLeftoversUnsynced,
        "test_a_power_loss_after_a_kill_and_a_recovery",
    ),
    "unlinks what it took back": (UnlinksWhatItTookBack, "test_a_power_loss_after_a_call_that_failed"),
    "copies aside": (CopiesAside, "test_a_crash_while_an_entry_is_set_aside"),
}


def suite_of(twin: type[Through] | type[LocalStore]) -> StoreCrashTests:
    class Suite(StoreCrashTests):
        def store_on(self, filesystem: FileSystem) -> Store:
            if issubclass(twin, LocalStore):
                return twin(CHECKPOINTS, ASIDE, filesystem)
            return LocalStore(CHECKPOINTS, ASIDE, twin(filesystem))

    return Suite()


@pytest.mark.parametrize("twin", TWINS)
def test_a_store_that_is_wrong_on_purpose_is_found(twin: str) -> None:
    """By the very test that the right store passes."""
    kind, found_by = TWINS[twin]

    with pytest.raises(AssertionError, match="a power loss leaves"):
        dict(inspect.getmembers(suite_of(kind)))[found_by]()


def test_the_store_must_be_said() -> None:
    with pytest.raises(NotImplementedError, match="build the store in `store_on`"):
        StoreCrashTests().test_a_crash_in_the_first_commit()
