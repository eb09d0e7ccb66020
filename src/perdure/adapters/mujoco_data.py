"""MuJoCo's simulation: the state that integration starts from, and every array that stays as long as the data does.

Each alone is wrong. `mjSTATE_INTEGRATION` lacks what is one substep stale by design (`xpos`, `xipos`), from which
environments compute rewards; positions and velocities alone lack the solver's warm start.
"""

from functools import lru_cache
from typing import Any

import mujoco
import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

_mujoco: Any = mujoco
"""Its functions are made when it is imported, so that type checkers see none of them."""

STATE = "integration"
_SPEC = _mujoco.mjtState.mjSTATE_INTEGRATION

_OF_ONE_STEP = ("efc_", "iefc_", "efm_", "iacc", "ifrc_", "map_")
"""What begins so lies in the arena, which each step lays out anew, as does what speaks of islands."""


class MjData(ExactAdapter):
    """`mujoco.MjData`, restored in place, so that whoever looks into its arrays goes on looking there."""

    id = "mujoco-data"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The integration state (float64), and one array of each dtype that holds all others one after another."""
        state = np.empty(_mujoco.mj_stateSize(obj.model, _SPEC))
        _mujoco.mj_getState(obj.model, obj, state, _SPEC)
        rest = {dtype: _joined(arrays) for dtype, arrays in _arrays(obj).items()}
        return {STATE: Array(state, immutable=True), **rest}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The sizes must be the same: those of one model."""
        expected = {STATE: _mujoco.mj_stateSize(obj.model, _SPEC)}
        expected |= {dtype: sum(array.size for array in arrays) for dtype, arrays in _arrays(obj).items()}
        saved = {name: part.value.size for name, part in tree.items()} if _is_of_arrays(tree) else summary(tree)
        if saved == expected:
            return []
        return [walk.finding(f"numbers: {saved}", f"numbers: {expected}", "Use the model that the run used.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The state first, for setting it may touch the others."""
        _mujoco.mj_setState(obj.model, obj, tree[STATE].value, _SPEC)
        for dtype, arrays in _arrays(obj).items():
            ends = np.cumsum([array.size for array in arrays])[:-1]
            for array, part in zip(arrays, np.split(tree[dtype].value, ends), strict=True):
                array[...] = part.reshape(array.shape)
        return obj


def _is_of_arrays(tree: Tree) -> bool:
    return isinstance(tree, dict) and all(isinstance(part, Array) for part in tree.values())


def _joined(arrays: list[np.ndarray]) -> Array:
    return Array(np.concatenate([array.ravel() for array in arrays]), immutable=True)


def _arrays(data: Any) -> dict[str, list[np.ndarray]]:
    """Every array that is not of one step alone, by dtype."""
    found: dict[str, list[np.ndarray]] = {}
    for name in _names():
        array = getattr(data, name)
        if array.size:
            found.setdefault(array.dtype.name, []).append(array)
    return found


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    data = _mujoco.MjData(_mujoco.MjModel.from_xml_string("<mujoco/>"))
    arrays = (name for name in sorted(dir(data)) if isinstance(getattr(data, name), np.ndarray))
    return tuple(name for name in arrays if not name.startswith(_OF_ONE_STEP) and "island" not in name)
