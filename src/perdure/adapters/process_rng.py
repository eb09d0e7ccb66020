"""The process's global random number generators: Python's, NumPy's, and PyTorch's once it is imported."""

import random
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.numpy_random import RandomState
from perdure.adapters.python_random import Random
from perdure.adapters.resolve import Resolver, load
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

NAME = "process_rng"
"""The component's reserved name."""

_TORCH = "torch"


class ProcessRng:
    """Stands for the global generators of this process."""

    def __init__(self) -> None:
        """Of all libraries that are loaded."""
        self.unreachable: dict[str, list[Any]] = {}
        """States that were restored and have no generator here (CUDA's): they are saved again as they are."""


class ProcessRngAdapter(ExactAdapter):
    """Captures and restores the generators behind the module functions of `random`, `numpy.random` and `torch`.

    PyTorch's have an entry once somebody has seeded or drawn: that it is imported alone says nothing about the run.
    """

    id = "process-rng"
    kind: Kind = "live"
    is_rng = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """One entry a library."""
        tree = {name: adapter.capture(generator, walk) for name, (adapter, generator) in _generators().items()}
        torch = _torch().capture(obj.unreachable, walk) if _torch_is_loaded() else None
        return tree if torch is None else {**tree, _TORCH: torch}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Python's and NumPy's generators must have been saved; PyTorch's may have been."""
        generators = _generators()
        if not isinstance(tree, dict) or not generators.keys() <= tree.keys() <= generators.keys() | {_TORCH}:
            return [walk.finding(summary(tree), f"{sorted(generators)}", "Use the perdure that wrote it.")]
        if _TORCH in tree and find_spec(_TORCH) is None:
            return [walk.finding("PyTorch's generator", "no PyTorch", "Install PyTorch, as the run had it.", _TORCH)]
        torch = _torch().check(obj.unreachable, tree[_TORCH], walk) if _TORCH in tree else []
        return torch + [
            finding
            for name, (adapter, generator) in generators.items()
            for finding in adapter.check(generator, tree[name], walk)
        ]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the generators in place; PyTorch is imported if its generator was saved."""
        for name, (adapter, generator) in _generators().items():
            adapter.restore(generator, tree[name], walk)
        if _TORCH in tree or _torch_is_loaded():
            _torch().restore(obj.unreachable, tree.get(_TORCH), walk)
        return obj


def states() -> tuple[object, ...]:
    """What all of them hold now: equal at two moments if nobody has seeded or drawn from one in between.

    Not by their adapters, which take ten times as long: workers ask at each capture.
    """
    torch = _torch().capture({}, Walk(Resolver())) if _torch_is_loaded() else None
    return random.getstate(), _compared(np.random.get_state(legacy=False)), _compared(torch)


def _compared(state: Any) -> object:
    """The same, such that `==` compares the arrays in it."""
    if isinstance(state, Mapping):
        return {name: _compared(part) for name, part in state.items()}
    if isinstance(state, list):
        return [_compared(part) for part in state]
    value = state.value if isinstance(state, Array) else state
    return value.tobytes() if isinstance(value, np.ndarray) else value


class _PythonGlobal:
    getstate = staticmethod(random.getstate)
    setstate = staticmethod(random.setstate)


class _NumpyGlobal:
    get_state = staticmethod(np.random.get_state)
    set_state = staticmethod(np.random.set_state)


def _generators() -> dict[str, tuple[Any, Any]]:
    return {"python": (Random(), _PythonGlobal), "numpy": (RandomState(), _NumpyGlobal)}


def _torch() -> Any:
    return load("torch_random:GlobalsAdapter")


def _torch_is_loaded() -> bool:
    return hasattr(sys.modules.get(_TORCH), "get_rng_state")  # and is not being imported right now
