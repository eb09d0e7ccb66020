"""Orbax: `StandardCheckpointer`, and the newer functions of its `v1`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import v1

from benchmarks.common.scratch import sync_tree
from benchmarks.peers.states import Make, State, made


class OrbaxStandard:
    """`StandardCheckpointer`, waited for and then synced."""

    def __init__(self, name: str, make: Make) -> None:
        self.name = name
        self._make = make
        self._checkpointer = ocp.StandardCheckpointer()

    def prepare(self, state: State) -> Any:
        """Arrays of the kind that was chosen."""
        return made(state, self._make)

    def save(self, path: Path, prepared: Any) -> None:
        """Not all of its files are synced by itself."""
        self._checkpointer.save(path, prepared)
        self._checkpointer.wait_until_finished()
        sync_tree(path)

    def save_async(self, path: Path, prepared: Any) -> Callable[[], object]:
        """Returns as soon as Orbax lets the loop go on; the result waits for the rest."""
        self._checkpointer.save(path, prepared)
        return self._checkpointer.wait_until_finished

    def load(self, path: Path, target: Any) -> object:
        """Into arrays like the target's."""
        return jax.block_until_ready(self._checkpointer.restore(path, _abstract(target)))


class OrbaxV1:
    """`v1.save` and `v1.load`."""

    def __init__(self, name: str, make: Make) -> None:
        self.name = name
        self._make = make

    def prepare(self, state: State) -> Any:
        """Arrays of the kind that was chosen."""
        return made(state, self._make)

    def save(self, path: Path, prepared: Any) -> None:
        """Not all of its files are synced by itself."""
        v1.save(str(path), prepared)
        sync_tree(path)

    def save_async(self, path: Path, prepared: Any) -> Callable[[], object]:
        """As above."""
        return v1.save_async(str(path), prepared).result

    def load(self, path: Path, target: Any) -> object:
        """Into arrays like the target's."""
        return jax.block_until_ready(v1.load(str(path), _abstract(target)))


def _abstract(target: Any) -> Any:
    return jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
