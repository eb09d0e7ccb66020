"""The process's global random number generators: Python's and NumPy's."""

import random
from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.numpy_random import RandomState
from perdure.adapters.python_random import Random
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree

NAME = "process_rng"
"""The component's reserved name."""


class ProcessRng:
    """Stands for the global generators of this process; it has no state of its own."""


class ProcessRngAdapter(ExactAdapter):
    """Captures and restores the generators behind the `random` and `numpy.random` module functions."""

    id = "process-rng"
    kind: Kind = "live"
    is_rng = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """One entry a library."""
        return {name: adapter.capture(generator, walk) for name, (adapter, generator) in _generators().items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Every library's generator must have been saved."""
        generators = _generators()
        if not isinstance(tree, dict) or tree.keys() != generators.keys():
            return [walk.finding(summary(tree), f"{sorted(generators)}", "Use the perdure that wrote it.")]
        return [
            finding
            for name, (adapter, generator) in generators.items()
            for finding in adapter.check(generator, tree[name], walk)
        ]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the generators in place."""
        for name, (adapter, generator) in _generators().items():
            adapter.restore(generator, tree[name], walk)
        return obj


class _PythonGlobal:
    getstate = staticmethod(random.getstate)
    setstate = staticmethod(random.setstate)


class _NumpyGlobal:
    get_state = staticmethod(np.random.get_state)
    set_state = staticmethod(np.random.set_state)


def _generators() -> dict[str, tuple[Any, Any]]:
    return {"python": (Random(), _PythonGlobal), "numpy": (RandomState(), _NumpyGlobal)}
