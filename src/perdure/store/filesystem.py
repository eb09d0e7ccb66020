"""The narrow port to the file system: every operation that the local store performs on disk."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from perdure.store.store import Bytes


class FileSystem:
    """The real one. Tests put another in its place to record, fail or lose operations."""

    def make_directory(self, path: Path) -> None:
        """Creates a directory and its parents, durably; existing is fine."""
        if not path.is_dir():
            self.make_directory(path.parent)
            path.mkdir(exist_ok=True)
            self.sync_directory(path.parent)

    def make_new_directory(self, path: Path) -> None:
        """Creates a directory that must not exist."""
        path.mkdir()

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        """Writes a new file, piece by piece; not yet durable."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _descriptor(path, flags) as descriptor:
            for batch in _batches(pieces):
                _write_all(descriptor, batch)

    def sync_file(self, path: Path) -> None:
        """Makes a file's content durable."""
        with _descriptor(path, os.O_RDONLY | os.O_CLOEXEC) as descriptor:
            os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Makes a directory's entries durable."""
        with _descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as descriptor:
            os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Renames a directory; the target must not exist (an empty directory there counts as existing)."""
        if os.path.lexists(target):
            raise FileExistsError(f"{target} exists")
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file a second name; an OSError where the file system cannot."""
        target.hardlink_to(source)

    def free_bytes(self, path: Path) -> int:
        """Bytes that this user can still write to the file system of `path`."""
        return shutil.disk_usage(path).free

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty if there is no directory."""
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []

    def is_directory(self, path: Path) -> bool:
        """Whether a real directory, no link to one, stands there."""
        return path.is_dir() and not path.is_symlink()

    def file_sizes(self, path: Path) -> dict[str, int]:
        """The regular files of a directory and their sizes in bytes; links are no regular files."""
        with os.scandir(path) as entries:
            regular = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in regular}

    def read_file(self, path: Path) -> np.ndarray:
        """A file's bytes in private, writable memory."""
        with _descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW) as descriptor:
            buffer = np.empty(os.fstat(descriptor).st_size, np.uint8)
            rest = [buffer.data]
            while rest and rest[0].nbytes:
                _advance(rest, os.readv(descriptor, rest))
            return buffer

    def read_file_into(self, path: Path, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """Fills buffers of bytes one after another with a file's bytes, from byte `offset` on."""
        with _descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW) as descriptor:
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            rest = [buffer for buffer in buffers if buffer.nbytes]
            while rest:
                _advance(rest, os.readv(descriptor, rest[:_BUFFERS_A_CALL]))

    def remove_tree(self, path: Path) -> None:
        """Removes a directory with everything in it."""
        shutil.rmtree(path)


_BUFFERS_A_CALL = 512
"""Well below the IOV_MAX of every system."""

_BATCH_BYTES = 1 << 20
"""Written at once."""


@contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _batches(pieces: Iterable[Bytes]) -> Iterator[list[memoryview]]:
    """Gathers small pieces, so that a file of many small arrays takes few calls; keeps none back for long."""
    batch: list[memoryview] = []
    size = 0
    for piece in pieces:
        batch.append(memoryview(piece).cast("B"))
        size += batch[-1].nbytes
        if size >= _BATCH_BYTES or len(batch) == _BUFFERS_A_CALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_all(descriptor: int, batch: list[memoryview]) -> None:
    rest = [buffer for buffer in batch if buffer.nbytes]
    while rest:
        _advance(rest, os.writev(descriptor, rest))


def _advance(rest: list[memoryview], number: int) -> None:
    """Drops the first `number` bytes from the buffers."""
    if number == 0:
        raise OSError("the file ended too early")
    full = 0
    while full < len(rest) and number >= rest[full].nbytes:
        number -= rest[full].nbytes
        full += 1
    del rest[:full]
    if number:
        rest[0] = rest[0][number:]
