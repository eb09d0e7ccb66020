"""Bytes that are there already, as a file that is read: nothing more than what is asked for is copied."""

import errno
import io
import mmap
from pathlib import Path

LINE_BYTES = 4096
"""The longest line; lines are names of modules and classes in pickles."""


class Window(io.RawIOBase):
    """Reads a memoryview from a position. Whatever length is asked for, no more is allocated than there is."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data = data
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a position; like that of files, one before the first byte is an `OSError`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, f"byte {start + offset} is before the first one")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; fewer than `size` where they end."""
        end = len(self._data) if size is None or size < 0 else min(len(self._data), self._position + size)
        piece = bytes(self._data[self._position : end])
        self._position += len(piece)
        return piece

    def readline(self, size: int | None = -1) -> bytes:
        """The next line, cut after `LINE_BYTES`."""
        limit = LINE_BYTES if size is None or size < 0 else min(size, LINE_BYTES)
        piece = bytes(self._data[self._position : self._position + limit])
        line = piece[: piece.find(b"\n") + 1 or len(piece)]
        self._position += len(line)
        return line


def mapped(path: Path) -> memoryview:
    """A file's bytes for a quick look: read from the disk only where they are looked at, and only now.

    A trainer that writes the file anew would change them under the reader, or even end the process (SIGBUS).
    """
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)) if size else memoryview(b"")


def loaded(path: Path) -> memoryview:
    """A file's bytes in memory, so that what was checked is what is used, whatever becomes of the file."""
    return memoryview(path.read_bytes())
