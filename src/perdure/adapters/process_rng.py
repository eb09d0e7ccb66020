"""The process's global random number generators: Python's, NumPy's, and PyTorch's once it is imported."""

import random
import sys
from collections.abc import Set
from importlib.util import find_spec
from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.numpy_random import RandomState
from perdure.adapters.python_random import Random
from perdure.adapters.resolve import load
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree

NAME = "process_rng"
"""The component's reserved name."""

_ALWAYS = frozenset({"python", "numpy"})
_TORCH = "torch"


class ProcessRng:
    """Stands for the global generators of this process."""

    def __init__(self) -> None:
        """Of all libraries that are loaded."""
        self.libraries: Set[str] | None = None
        """Those that the checkpoint had, between a restore and the end of it; None: all that are loaded."""
        self.unreachable: dict[str, list[Any]] = {}
        """States that were restored and have no generator here (CUDA's): they are saved again as they are."""

    def follow_all(self) -> None:
        """A library that the restored checkpoint did not know yet counts from now on."""
        self.libraries = None


class ProcessRngAdapter(ExactAdapter):
    """Captures and restores the generators behind the module functions of `random`, `numpy.random` and `torch`."""

    id = "process-rng"
    kind: Kind = "live"
    is_rng = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """One entry a library."""
        generators = _generators(_loaded() if obj.libraries is None else obj.libraries, obj)
        return {name: adapter.capture(generator, walk) for name, (adapter, generator) in generators.items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Python's and NumPy's generators must have been saved; those of a library in use here may be missing."""
        if not isinstance(tree, dict) or not _ALWAYS <= tree.keys() <= _ALWAYS | {_TORCH}:
            return [walk.finding(summary(tree), f"{sorted(_ALWAYS)}", "Use the perdure that wrote it.")]
        if _TORCH in tree and find_spec(_TORCH) is None:
            return [walk.finding("PyTorch's generator", "no PyTorch", "Install PyTorch, as the run had it.", _TORCH)]
        return [
            finding
            for name, (adapter, generator) in _generators(tree.keys(), obj).items()
            for finding in adapter.check(generator, tree[name], walk)
        ]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the generators in place; a library whose generator was saved is imported."""
        obj.libraries = frozenset(tree)
        for name, (adapter, generator) in _generators(tree.keys(), obj).items():
            adapter.restore(generator, tree[name], walk)
        return obj


class _PythonGlobal:
    getstate = staticmethod(random.getstate)
    setstate = staticmethod(random.setstate)


class _NumpyGlobal:
    get_state = staticmethod(np.random.get_state)
    set_state = staticmethod(np.random.set_state)


def _loaded() -> Set[str]:
    # Not one that is being imported right now.
    return _ALWAYS | {_TORCH} if hasattr(sys.modules.get(_TORCH), "get_rng_state") else _ALWAYS


def _generators(libraries: Set[str], obj: ProcessRng) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {"python": (Random(), _PythonGlobal), "numpy": (RandomState(), _NumpyGlobal)}
    if _TORCH in libraries:
        found[_TORCH] = (load("torch_random:GlobalsAdapter"), obj.unreachable)
    return found
