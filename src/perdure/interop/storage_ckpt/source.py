"""A file under a reader: its bytes, mapped and not copied, and where the reader stands."""

import mmap
import os
from pathlib import Path
from typing import NoReturn

from perdure.errors import NoCheckpointError
from perdure.interop.storage_ckpt.faults import Kind, StorageFileError

MAX_LINE_BYTES = 1 << 16
"""The longest header that is read; real ones have some 30 bytes."""

UNDAMAGED = "Take an undamaged copy of the file."


class Source:
    """The bytes of one file, and a position among them."""

    def __init__(self, path: Path) -> None:
        """Maps the file.

        Raises:
            NoCheckpointError: there is none.
            StorageFileError: it is a directory, a device or empty.
        """
        self.path = path
        self.position = 0
        if not path.exists():
            raise NoCheckpointError(f"{path}: no such file. Name a file of storage-ckpt, version 2 or 3.")
        if not path.is_file() or not (size := path.stat().st_size):
            what = "it is empty" if path.is_file() else "it is no regular file"
            raise StorageFileError(Kind.NOT_A_CHECKPOINT, str(path), what, "Name a file of storage-ckpt.")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self.size = size

    @property
    def left(self) -> int:
        """Bytes behind the position."""
        return self.size - self.position

    def take(self, count: int) -> int:
        """Steps over bytes, of which there must be so many; the offset at which they begin."""
        start = self.position
        self.position += count
        return start

    def line(self, limit: int = MAX_LINE_BYTES) -> bytes | None:
        """The next line without its newline, stepped over; None if none ends within the limit."""
        end = self.data.find(b"\n", self.position, self.position + limit + 1)
        if end < 0:
            return None
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def peek(self, count: int) -> bytes:
        """The next bytes, as many as there are, not stepped over."""
        return self.data[self.position : self.position + count]

    def refuse(self, kind: Kind, at: int, problem: str, way_out: str = UNDAMAGED) -> NoReturn:
        """Raises the error of a fault at a byte."""
        raise StorageFileError(kind, f"{self.path}: byte {at:,} of {self.size:,}", problem, way_out)
