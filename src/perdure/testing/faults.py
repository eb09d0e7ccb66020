"""Faults on demand: a file system and a store of which the n-th call fails, for every n.

```python
for fault in Fault.at_each_call(errno.ENOSPC):
    store = LocalStore(directory, aside, FaultyFileSystem(FileSystem(), fault))
    ...                     # do the work; if `fault.fired`, it must have failed, and nothing may be lost
```

EINTR is none of these faults: Python repeats a system call that a signal interrupted (PEP 475), so the port never
raises it.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes, Staging, Store

CHANGES = frozenset(
    {
        "make_directory",
        "make_new_directory",
        "write_file",
        "sync_file",
        "sync_directory",
        "rename",
        "link",
        "remove_tree",
        "stage",
        "write",
        "reuse",
        "commit",
        "set_aside",
        "remove",
        "remove_leftovers",
    }
)
"""Calls that change the disk, of a file system and of a store."""


class Fault:
    """Makes one call fail, the one of this number; counts them in whatever order threads make them."""

    def __init__(self, number: int | None, error: int = errno.EIO, *, lasting: bool = False) -> None:
        """Plans the fault.

        Args:
            number: of the call that fails, from 0; None: none does, calls are only counted.
            error: the errno that it fails with.
            lasting: whether each later call that changes something fails too, as on a disk that stays full or has
                become read-only. Until `end` is called.
        """
        self._number = number
        self._error = error
        self._lasting = lasting
        self._lock = threading.Lock()
        self.calls: list[str] = []
        """The names of all calls so far."""
        self.fired = False
        """Whether the call has come and failed."""

    @classmethod
    def at_each_call(cls, *errors: int, lasting: bool = False) -> Iterator["Fault"]:
        """A fault at call 0, 1, 2, …, for each of the errors; for each the last one, which no call reaches, is spared.

        Args:
            *errors: errno values; default EIO.
            lasting: see `Fault`.
        """
        for error in errors or (errno.EIO,):
            for number in count():
                fault = cls(number, error, lasting=lasting)
                yield fault
                if not fault.fired:
                    break

    def end(self) -> None:
        """Nothing fails any more: the disk has space again."""
        with self._lock:
            self._number, self._lasting = None, False

    def meet(self, call: str) -> None:
        """Counts a call.

        Raises:
            OSError: it is the one that fails.
        """
        error = self.take(call)
        if error is not None:
            raise error

    def take(self, call: str) -> OSError | None:
        """Counts a call; the error it should fail with, if any, for whoever has something to do before."""
        with self._lock:
            number = len(self.calls)
            self.calls.append(call)
            again = self._lasting and self.fired and call in CHANGES
            if number != self._number and not again:
                return None
            self.fired = True
            return OSError(self._error, f"{os.strerror(self._error)} (call {number}, {call})")

    def __str__(self) -> str:
        """For messages of failing tests."""
        name = errno.errorcode.get(self._error, str(self._error))
        call = self.calls[self._number] if self._number is not None and self._number < len(self.calls) else "no call"
        return f"{name} at call {self._number} ({call}){' and ever after' if self._lasting else ''}"


class FaultyFileSystem(FileSystem):
    """A file system over another one, on which one call fails.

    The call that fails changes nothing, but for `write_file`: it leaves a part of the file behind (a short write). A
    process that is killed is a lasting fault: its last call fails, and nothing that it would do to clean up happens.
    """

    def __init__(self, inner: FileSystem, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def make_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("make_directory")
        self._inner.make_directory(path)

    def make_new_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("make_new_directory")
        self._inner.make_new_directory(path)

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        """See `FileSystem`."""
        error = self._fault.take("write_file")
        if error is None:
            self._inner.write_file(path, pieces)
            return
        whole = b"".join(bytes(piece) for piece in pieces)
        self._inner.write_file(path, [whole[: len(whole) // 2]])
        raise error

    def sync_file(self, path: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("sync_file")
        self._inner.sync_file(path)

    def sync_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("sync_directory")
        self._inner.sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("rename")
        self._inner.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("link")
        self._inner.link(source, target)

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem`."""
        self._fault.meet("free_bytes")
        return self._inner.free_bytes(path)

    def list_directory(self, path: Path) -> list[str]:
        """See `FileSystem`."""
        self._fault.meet("list_directory")
        return self._inner.list_directory(path)

    def is_directory(self, path: Path) -> bool:
        """See `FileSystem`: never fails, as it says no where it cannot tell."""
        return self._inner.is_directory(path)

    def file_sizes(self, path: Path) -> dict[str, int]:
        """See `FileSystem`."""
        self._fault.meet("file_sizes")
        return self._inner.file_sizes(path)

    def read_file(self, path: Path) -> np.ndarray:
        """See `FileSystem`."""
        self._fault.meet("read_file")
        return self._inner.read_file(path)

    def read_file_into(self, path: Path, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """See `FileSystem`."""
        self._fault.meet("read_file_into")
        self._inner.read_file_into(path, buffers, offset)

    def remove_tree(self, path: Path) -> None:
        """See `FileSystem`."""
        self._fault.meet("remove_tree")
        self._inner.remove_tree(path)


class FaultyStore:
    """A store over another one, on which one call fails: of the store itself or of a staging.

    For tests of whatever uses a store. A call that fails changes nothing.
    """

    def __init__(self, inner: Store, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def names(self) -> list[str]:
        """See `Store`."""
        self._fault.meet("names")
        return self._inner.names()

    def stage(self, name: str) -> Staging:
        """See `Store`."""
        self._fault.meet("stage")
        return _FaultyStaging(self._inner.stage(name), self._fault)

    def files(self, name: str) -> dict[str, int]:
        """See `Store`."""
        self._fault.meet("files")
        return self._inner.files(name)

    def read(self, name: str, file: str) -> np.ndarray:
        """See `Store`."""
        self._fault.meet("read")
        return self._inner.read(name, file)

    def read_into(self, name: str, file: str, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """See `Store`."""
        self._fault.meet("read_into")
        self._inner.read_into(name, file, buffers, offset)

    def set_aside(self, name: str) -> str:
        """See `Store`."""
        self._fault.meet("set_aside")
        return self._inner.set_aside(name)

    def remove(self, name: str) -> None:
        """See `Store`."""
        self._fault.meet("remove")
        self._inner.remove(name)

    def free_bytes(self) -> int | None:
        """See `Store`."""
        self._fault.meet("free_bytes")
        return self._inner.free_bytes()

    def remove_leftovers(self) -> list[str]:
        """See `Store`."""
        self._fault.meet("remove_leftovers")
        return self._inner.remove_leftovers()


class _FaultyStaging:
    def __init__(self, inner: Staging, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        self._fault.meet("write")
        self._inner.write(file, pieces)

    def reuse(self, file: str, entry: str) -> None:
        self._fault.meet("reuse")
        self._inner.reuse(file, entry)

    def commit(self) -> None:
        self._fault.meet("commit")
        self._inner.commit()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)
