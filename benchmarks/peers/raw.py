"""The least that a durable save can be: one file a component, written and fsynced one after another."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.scratch import sync
from benchmarks.peers.states import State, as_numpy, made


class Raw:
    """Bytes without structure, digests or atomicity; the directory and its parent are synced at the end."""

    name = "raw files"

    def prepare(self, state: State) -> Any:
        """NumPy arrays."""
        return made(state, as_numpy)

    def save(self, path: Path, prepared: Any) -> None:
        """Writes and syncs each file before it begins the next."""
        path.mkdir()
        for component, arrays in prepared.items():
            with (path / component).open("wb") as file:
                for array in arrays.values():
                    file.write(array.data)
                file.flush()
                os.fsync(file.fileno())
        sync(path)
        sync(path.parent)

    def load(self, path: Path, target: Any) -> object:
        """Reads each array into new memory."""
        loaded = []
        for component, arrays in target.items():
            with (path / component).open("rb", buffering=0) as file:
                for array in arrays.values():
                    loaded.append(np.empty_like(array))
                    _fill(file.readinto, loaded[-1].reshape(-1).view(np.uint8).data)
        return loaded


def _fill(read_into: Any, rest: memoryview) -> None:
    while rest.nbytes:
        rest = rest[read_into(rest) :]
