"""PyTorch: distributed checkpoints (DCP) of one process, and `torch.save`.

torch is imported by name at run time: it is not installed where types are checked.
"""

import importlib
import warnings
from pathlib import Path
from typing import Any

from benchmarks.common.scratch import sync_tree
from benchmarks.peers.states import State, as_torch, made


class Dcp:
    """`torch.distributed.checkpoint`, which syncs its files itself but not its directory."""

    name = "PyTorch DCP"

    def __init__(self) -> None:
        self._dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    def prepare(self, state: State) -> Any:
        """Tensors."""
        return made(state, as_torch)

    def save(self, path: Path, prepared: Any) -> None:
        """Saves as a single process."""
        with warnings.catch_warnings(action="ignore"):  # that there is a single process
            self._dcp.save(prepared, checkpoint_id=path, no_dist=True)
        sync_tree(path)

    def load(self, path: Path, target: Any) -> object:
        """In place, as it always does."""
        with warnings.catch_warnings(action="ignore"):
            self._dcp.load(target, checkpoint_id=path, no_dist=True)
        return target


class TorchSave:
    """`torch.save` of the whole state into one file, then fsync."""

    name = "torch.save + fsync"

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch")

    def prepare(self, state: State) -> Any:
        """Tensors."""
        return made(state, as_torch)

    def save(self, path: Path, prepared: Any) -> None:
        """One file in a directory."""
        path.mkdir()
        self._torch.save(prepared, path / "state.pt")
        sync_tree(path)

    def load(self, path: Path, target: Any) -> object:
        """New tensors."""
        return self._torch.load(path / "state.pt", weights_only=True)
