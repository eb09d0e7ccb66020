"""The protocol that every store keeps."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np

Bytes = bytes | bytearray | memoryview
"""Anything with a contiguous buffer."""


def scatter(data: memoryview, buffers: Sequence[memoryview]) -> None:
    """Fills the buffers one after another from `data`.

    Raises:
        OSError: `data` is too short.
    """
    if sum(buffer.nbytes for buffer in buffers) > data.nbytes:
        raise OSError("the file is shorter than it should be")
    start = 0
    for buffer in buffers:
        buffer[:] = data[start : start + buffer.nbytes]
        start += buffer.nbytes


class Staging(Protocol):
    """An entry in the making. Nothing of it is visible until `commit`; leaving the context abandons it."""

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        """Writes a whole file. An OSError abandons the entry for good: no retry on a page that may be lost.

        Pieces are gathered: none may change before this returns.
        """
        ...

    def reuse(self, file: str, entry: str) -> None:
        """Takes over a file of a committed entry, unchanged and under the same name, without writing it again.

        Raises:
            FileNotFoundError: the entry or its file is gone.
            OSError: it can be neither linked nor copied.
        """
        ...

    def commit(self) -> None:
        """Makes the entry durable, then visible, atomically: after a crash it is there whole or not at all.

        Raises:
            FileExistsError: the name is taken. Nothing changed.
            OSError: the entry could not be made durable. Nothing is visible.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abandons the entry unless it was committed."""
        ...


class Store(Protocol):
    """Named entries, each a flat set of files.

    Entries are immutable once committed. One writer at a time (the caller holds a lock); any number of readers.
    The list of entries is what is there now, never a belief from earlier.
    """

    def names(self) -> list[str]:
        """The committed entries' names, sorted."""
        ...

    def stage(self, name: str) -> Staging:
        """Begins an entry that `commit` will give this name."""
        ...

    def files(self, name: str) -> dict[str, int]:
        """The entry's files and their sizes in bytes.

        Raises:
            FileNotFoundError: no such entry.
        """
        ...

    def read(self, name: str, file: str) -> np.ndarray:
        """A file's bytes in private, writable memory, uint8.

        Raises:
            FileNotFoundError: no such entry or file.
            OSError: it cannot be read.
        """
        ...

    def read_into(self, name: str, file: str, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """Fills the buffers one after another with the file's bytes, from its byte `offset` on.

        Raises:
            FileNotFoundError: no such entry or file.
            OSError: it cannot be read, or has fewer bytes than the buffers.
        """
        ...

    def set_aside(self, name: str) -> str:
        """Moves a damaged entry out of the way, keeping it; the name becomes free. Returns where it is now."""
        ...

    def remove(self, name: str) -> None:
        """Removes an entry: it is gone at once and for good, also after a crash; its space follows."""
        ...

    def free_bytes(self) -> int | None:
        """Bytes that can still be written; None where nobody can tell."""
        ...

    def remove_leftovers(self) -> list[str]:
        """Removes what crashed writers left behind; the caller holds the lock. Returns what was removed."""
        ...
