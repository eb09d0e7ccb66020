"""The safetensors library, one file, then fsync."""

from pathlib import Path
from typing import Any

import safetensors.numpy

from benchmarks.common.scratch import sync_tree
from benchmarks.peers.states import State, as_numpy


class Safetensors:
    """NumPy arrays in one flat file."""

    name = "safetensors + fsync"

    def prepare(self, state: State) -> Any:
        """A flat dict of NumPy arrays."""
        return {f"{name}/{key}": as_numpy(array) for name, arrays in state.items() for key, array in arrays.items()}

    def save(self, path: Path, prepared: Any) -> None:
        """One file in a directory."""
        path.mkdir()
        safetensors.numpy.save_file(prepared, path / "state.safetensors")
        sync_tree(path)

    def load(self, path: Path, target: Any) -> object:
        """New NumPy arrays."""
        return safetensors.numpy.load_file(path / "state.safetensors")
