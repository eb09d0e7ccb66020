"""The store in memory: the model that other stores are compared with, and a fast stand-in for tests."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from perdure.store.store import Bytes, scatter


class MemoryStore:
    """Entries in a dict. Nothing survives the process."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, bytes]] = {}
        """Committed entries: name -> file -> bytes."""
        self.aside: dict[str, dict[str, bytes]] = {}
        """Damaged entries that were set aside."""

    def names(self) -> list[str]:
        """See `Store.names`."""
        return sorted(self.entries)

    def stage(self, name: str) -> "MemoryStaging":
        """See `Store.stage`."""
        return MemoryStaging(self.entries, name)

    def files(self, name: str) -> dict[str, int]:
        """See `Store.files`."""
        return {file: len(data) for file, data in self._entry(name).items()}

    def read(self, name: str, file: str) -> np.ndarray:
        """See `Store.read`."""
        entry = self._entry(name)
        if file not in entry:
            raise FileNotFoundError(f"{name}/{file}")
        return np.frombuffer(bytearray(entry[file]), np.uint8)

    def read_into(self, name: str, file: str, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """See `Store.read_into`."""
        scatter(self.read(name, file).data[offset:], buffers)

    def set_aside(self, name: str) -> str:
        """See `Store.set_aside`."""
        self._entry(name)
        target = name
        while target in self.aside:
            target += "+"
        self.aside[target] = self.entries.pop(name)
        return f"aside/{target}"

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        self._entry(name)
        del self.entries[name]

    def free_bytes(self) -> int | None:
        """See `Store.free_bytes`; memory does not know."""
        return None

    def remove_leftovers(self) -> list[str]:
        """See `Store.remove_leftovers`; memory keeps none."""
        return []

    def _entry(self, name: str) -> dict[str, bytes]:
        if name not in self.entries:
            raise FileNotFoundError(name)
        return self.entries[name]


class MemoryStaging:
    """An entry in the making, kept apart from the committed ones."""

    def __init__(self, entries: dict[str, dict[str, bytes]], name: str) -> None:
        self._entries = entries
        self._name = name
        self._files: dict[str, bytes] = {}

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        """See `Staging.write`."""
        if file in self._files:
            raise FileExistsError(file)
        self._files[file] = b"".join(bytes(piece) for piece in pieces)

    def reuse(self, file: str, entry: str) -> None:
        """See `Staging.reuse`."""
        if file not in self._entries.get(entry, {}):
            raise FileNotFoundError(f"{entry}/{file}")
        self._files[file] = self._entries[entry][file]

    def commit(self) -> None:
        """See `Staging.commit`."""
        if self._name in self._entries:
            raise FileExistsError(f"{self._name} exists")
        self._entries[self._name] = self._files

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `Staging.__exit__`."""
