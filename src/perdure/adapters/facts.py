"""Functions, classes, dtypes and modules: no state, but what they are called must not change."""

from types import FunctionType, ModuleType
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
        """No state; the walk's facts get the name, and what a closure binds: hyper-parameters live there."""
        walk.fact(f"{name_of(obj)}{_bound(obj, set())}")

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else than a fact was saved here."""
        if tree is None:
            return []
        return [walk.finding("state", name_of(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj


def _bound(obj: Any, seen: set[int]) -> str:
    """What a function's closure binds, as far as it can be read: numbers, text, and functions with theirs."""
    cells = getattr(obj, "__closure__", None)
    if not cells or id(obj) in seen:
        return ""
    seen.add(id(obj))
    names = obj.__code__.co_freevars
    parts = [(name, _readable(cell, seen)) for name, cell in zip(names, cells, strict=True)]
    shown = ", ".join(f"{name}={text}" for name, text in parts if text)
    return f"({shown})" if shown else ""


def _readable(cell: Any, seen: set[int]) -> str:
    try:
        value = cell.cell_contents
    except ValueError:  # not bound yet
        return ""
    return _text_of(value, seen)


def _text_of(value: Any, seen: set[int]) -> str:
    if type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, FunctionType):
        return f"{name_of(value)}{_bound(value, seen)}"
    if isinstance(value, list | tuple) and id(value) not in seen:
        seen.add(id(value))
        return f"[{', '.join(_text_of(part, seen) for part in value)}]"
    return ""


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
