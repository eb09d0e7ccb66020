"""Plain leaves: None, bool, int, float, complex, str, bytes; and enum members."""

import enum
from typing import Any

from perdure.adapters.adapter import ExactAdapter
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree


class Plain(ExactAdapter):
    """Leaves that are their own state; the saved one is returned whatever the target held.

    A target that is None expects nothing in particular: a variable that starts as None may come back as any
    plain value or array. Numbers may change their type (`best = 0`, later 0.5, or a 0-d array).
    """

    id = "plain"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The leaf itself."""
        return obj

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """A leaf of another kind is a finding."""
        if obj is None and walk.is_plain(tree):
            return []
        if tree is None or (_family(tree) is not None and _family(tree) == _family(obj)):
            return []
        advice = "Start this value with the kind that the run keeps in it."
        return [walk.finding(summary(tree), summary(obj), advice)]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved leaf."""
        return walk.rebuild(tree)


class Enum(ExactAdapter):
    """Members of an `enum.Enum`, stored by name, combined flags by number; the class comes from the target."""

    id = "enum"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The member's name; a combination of flags has none that tells it. The class is a fact."""
        walk.fact(name_of(type(obj)), "class")
        return _tree_of(obj)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The target's class must have the member."""
        member = _member(type(obj), tree)
        if member is not None and _tree_of(member) == tree:
            return []
        found = f"{type(obj).__qualname__} with {list(type(obj).__members__)}"
        return [walk.finding(summary(tree), found, "Start this value with the enum that the run keeps in it.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved member."""
        return _member(type(obj), tree)


def _tree_of(member: enum.Enum) -> str | int:
    return member.name if member.name in type(member).__members__ else member.value


def _member(kind: type[enum.Enum], tree: Tree) -> enum.Enum | None:
    if issubclass(kind, enum.Flag) and type(tree) is int:
        try:
            return kind(tree)
        except ValueError:
            return None
    return kind.__members__.get(tree) if isinstance(tree, str) else None


def _family(leaf: object) -> str | None:
    """Kinds that may stand for one another: `done = False`, later `np.True_`; `loss = 0.0`, later a 0-d array."""
    if isinstance(leaf, Array):
        kinds = {"b": "bool", "U": "text", "S": "bytes", **dict.fromkeys("iufcV", "number")}
        return kinds.get(leaf.value.dtype.kind) if leaf.value.ndim == 0 else None
    kinds = {bool: "bool", str: "text", bytes: "bytes", int: "number", float: "number", complex: "number"}
    return kinds.get(type(leaf))
