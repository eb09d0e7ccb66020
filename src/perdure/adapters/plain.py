"""Plain leaves: None, bool, int, float, complex, str, bytes."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Alias, Array, Tree, children


class Plain(ExactAdapter):
    """Leaves that are their own state; the saved one is returned whatever the target held.

    A target that is None expects nothing in particular: a variable that starts as None may come back as any
    plain value or NumPy array. Numbers may change their type (`best = 0`, later 0.5).
    """

    id = "plain"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The leaf itself."""
        return obj

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """A leaf of another kind is a finding."""
        if obj is None and is_plain(tree):
            return []
        if tree is None or (type(tree) in PLAIN_TYPES and _family(tree) is _family(obj)):
            return []
        if isinstance(tree, Array) and tree.scalar and _family(obj) is complex:
            return []
        advice = "Start this value with the kind that the run keeps in it."
        return [walk.finding(summary(tree), summary(obj), advice)]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved leaf."""
        return walk.rebuild(tree)


def _family(leaf: object) -> type:
    return complex if isinstance(leaf, int | float | complex) and not isinstance(leaf, bool) else type(leaf)


def is_plain(tree: Tree) -> bool:
    """Whether `Walk.rebuild` can do without a target: containers, plain leaves and NumPy arrays only."""
    if isinstance(tree, dict | list | tuple):
        return all(is_plain(child) for _, child in children(tree))
    return type(tree) in (*PLAIN_TYPES, Alias) or (isinstance(tree, Array) and not tree.weak_type)
