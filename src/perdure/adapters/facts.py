"""Functions, classes, dtypes and modules: no state, but what they are called must not change."""

from types import ModuleType
from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.leaves import Tree


class Fact(ExactAdapter):
    """Kept from the target; its name is noted and compared at a restore."""

    id = "fact"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """No state; the name goes to the walk's facts."""
        walk.fact(name_of(obj))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else than a fact was saved here."""
        if tree is None:
            return []
        return [walk.finding("state", name_of(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj


def name_of(obj: Any) -> str:
    """What the object is called, the same in every process; of its module only the top package, for others move."""
    if isinstance(obj, np.dtype):
        return f"dtype {obj.name if obj.isnative else obj.str}"
    if isinstance(obj, ModuleType):
        return f"module {obj.__name__}"
    kind = "class" if isinstance(obj, type) else "function"
    package = (getattr(obj, "__module__", None) or "builtins").split(".")[0]
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or f"of {type(obj).__qualname__}"
    return f"{kind} {package}:{name}"
