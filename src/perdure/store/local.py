"""The store on a local disk: one directory an entry, committed by a rename."""

import errno
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes

STAGING_PREFIX = ".staging."
REMOVED_PREFIX = ".removed."
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems answer that have no hard links, or no more for this file."""

SYNC_THREADS = 8
"""fsyncs in flight at once: they wait for the disk, which takes several together."""


class LocalStore:
    """Entries as directories below `directory`; damaged ones are moved below `aside`.

    Commit rule: a directory that bears a final name (no leading dot) is committed, and always whole, for it gets
    that name by a rename after all its files and itself were synced. After the rename the parent is synced.
    """

    def __init__(self, directory: Path, aside: Path, filesystem: FileSystem | None = None) -> None:
        self._directory = directory
        self._aside = aside
        self._filesystem = filesystem or FileSystem()

    def names(self) -> list[str]:
        """See `Store.names`."""
        there = self._filesystem.list_directory(self._directory)
        return [
            name for name in there if not name.startswith(".") and self._filesystem.is_directory(self._directory / name)
        ]

    def stage(self, name: str) -> "LocalStaging":
        """See `Store.stage`."""
        self._filesystem.make_directory(self._directory)
        return LocalStaging(self._directory, name, self._filesystem)

    def files(self, name: str) -> dict[str, int]:
        """See `Store.files`."""
        return self._filesystem.file_sizes(self._directory / name)

    def read(self, name: str, file: str) -> np.ndarray:
        """See `Store.read`."""
        return self._filesystem.read_file(self._directory / name / file)

    def read_into(self, name: str, file: str, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """See `Store.read_into`."""
        self._filesystem.read_file_into(self._directory / name / file, buffers, offset)

    def set_aside(self, name: str) -> str:
        """See `Store.set_aside`."""
        self._filesystem.make_directory(self._aside)
        taken = set(self._filesystem.list_directory(self._aside))
        candidates = (name if number == 0 else f"{name}.{number}" for number in range(len(taken) + 1))
        target = self._aside / next(candidate for candidate in candidates if candidate not in taken)
        self._filesystem.rename(self._directory / name, target)
        self._filesystem.sync_directory(self._aside)
        self._filesystem.sync_directory(self._directory)
        return str(target)

    def remove(self, name: str) -> None:
        """See `Store.remove`: renamed away, which a crash cannot undo half, then unlinked file by file."""
        removed = self._directory / f"{REMOVED_PREFIX}{secrets.token_hex(8)}"
        self._filesystem.rename(self._directory / name, removed)
        self._filesystem.sync_directory(self._directory)
        self._filesystem.remove_tree(removed)

    def free_bytes(self) -> int | None:
        """See `Store.free_bytes`."""
        return self._filesystem.free_bytes(self._directory) if self._filesystem.is_directory(self._directory) else None

    def remove_leftovers(self) -> list[str]:
        """See `Store.remove_leftovers`."""
        there = self._filesystem.list_directory(self._directory)
        leftovers = [name for name in there if name.startswith((STAGING_PREFIX, REMOVED_PREFIX))]
        if self._filesystem.is_directory(self._directory):
            # A killed writer may have renamed and not synced. From here on its entry stays; and what is unlinked below
            # cannot come back under a final name without these files.
            self._filesystem.sync_directory(self._directory)
        for name in leftovers:
            self._filesystem.remove_tree(self._directory / name)
        return leftovers


class LocalStaging:
    """An entry in the making: a `.staging.<hex>` directory until `commit` renames it."""

    def __init__(self, parent: Path, name: str, filesystem: FileSystem) -> None:
        self._parent = parent
        self._target = parent / name
        self._filesystem = filesystem
        self._directory = parent / f"{STAGING_PREFIX}{secrets.token_hex(8)}"
        self._syncs: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="perdure-sync")
        self._committed = False
        self._stays_whole = False
        filesystem.make_new_directory(self._directory)

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        """See `Staging.write`. A thread waits for the disk while the next file is written."""
        path = self._directory / file
        self._filesystem.write_file(path, pieces)
        try:
            self._syncs.append(self._threads.submit(self._filesystem.sync_file, path))
        except RuntimeError:  # the interpreter is ending and starts no thread any more; this one it waits for
            self._filesystem.sync_file(path)

    def reuse(self, file: str, entry: str) -> None:
        """See `Staging.reuse`: a hard link, or a copy where there are none."""
        source, target = self._parent / entry / file, self._directory / file
        try:
            self._filesystem.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.write(file, [self._filesystem.read_file(source).data])

    def commit(self) -> None:
        """See `Staging.commit`."""
        for sync in self._syncs:
            sync.result()
        self._filesystem.sync_directory(self._directory)
        self._filesystem.rename(self._directory, self._target)
        try:
            self._filesystem.sync_directory(self._parent)
        except OSError:
            self._filesystem.rename(self._target, self._directory)  # taken back: nobody may rely on it
            self._stays_whole = True  # for after a power loss it may stand under its final name all the same
            raise
        self._committed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `Staging.__exit__`."""
        self._threads.shutdown()
        if not self._committed and not self._stays_whole:
            # What cannot be removed now is a leftover, which the next holder of the lock removes and reports.
            with suppress(OSError):
                self._filesystem.remove_tree(self._directory)
