"""Sets: what is in them, and the order in which a program goes through it.

That order follows from the items' hashes and, where two of them meet, from what was added and removed before. Numbers,
and tuples of them, have the same hashes in every process, so that a program may depend on the order and be
reproducible: a set of them is taken only if adding its items in their order gives that order again. Text has other
hashes in each process, unless PYTHONHASHSEED says otherwise; no program that depends on the order of such a set is
reproducible, and it is stored sorted.
"""

import enum
import sys
from typing import Any

import numpy as np

from perdure.adapters.containers import Container
from perdure.adapters.walk import Walk
from perdure.contract.naming import full_name_of
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

_SAME_HASH_EVERYWHERE = (bool, int, float, complex, np.number, np.bool_)
_TOLD_BY_VALUE = (type(None), str, bytes, *_SAME_HASH_EVERYWHERE)

_OTHER_ORDER = (
    "a set whose order depends on what was added to it and removed from it before, so that a resume would go through "
    "its items in another. Use the keys of a dict (dict.fromkeys(items)), or a sorted list."
)


class Set(Container):
    """Sets of numbers, text, and tuples and frozen sets of them, where no environment holds them."""

    id = "set"
    has_identity = True
    kind_of_set: type = set

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The items' trees, in the set's order, or sorted where every process has another.

        Raises:
            CaptureError: an item is an object, or the order cannot be had again.
        """
        return [walk.capture(item, at) for at, item in enumerate(items_in_order(obj, walk))]

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Any other items will do."""
        if walk.made_here == self.id and isinstance(tree, list):
            return []
        return [walk.finding(summary(tree), f"a {type(obj).__name__}", "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new set; the target itself if it holds the same in the same order."""
        made = self.kind_of_set(walk.rebuild_at(child, at) for at, child in enumerate(tree))
        return obj if repr(list(made)) == repr(list(obj)) else made  # which tells -0.0 from 0.0, and True from 1


class FrozenSet(Set):
    """Frozen sets, likewise."""

    id = "frozen-set"
    has_identity = False
    kind_of_set = frozenset


def rebuild_set(tree: Tree, walk: Walk) -> Any:
    """A set without a target."""
    return {walk.rebuild_at(child, at) for at, child in enumerate(tree)}


def rebuild_frozen_set(tree: Tree, walk: Walk) -> Any:
    """A frozen set without a target."""
    return frozenset(walk.rebuild_at(child, at) for at, child in enumerate(tree))


def items_in_order(items: Any, walk: Walk) -> list[Any]:
    """The items of a set in an order that does not depend on the process, and that adding them gives again.

    Raises:
        CaptureError: an item is an object, or the set's order cannot be had by adding its items.
    """
    for item in items:
        refuse_object(item, f"a {type(items).__name__}'s item", walk)
    if not all(map(_has_same_hash_everywhere, items)):
        return sorted(items, key=lambda item: (type(item).__name__, _text(item)))
    ordered = list(items)
    if list(type(items)(ordered)) != ordered:
        raise CaptureError(f"{format_path(walk.path)}: {_OTHER_ORDER}")
    return ordered


def refuse_object(item: Any, what: str, walk: Walk) -> None:
    """Refuses what a set or dict places by its address or by code of its own.

    Raises:
        CaptureError: the item is neither a number, text, None, inside an environment a member of an enum, nor a tuple
            or frozen set of them; or it is not a number, which is no value that equals itself.
    """
    if type(item) in (tuple, frozenset) or (walk.inside_environment and isinstance(item, tuple | frozenset)):
        for part in item:
            refuse_object(part, what, walk)
        return
    is_member = isinstance(item, enum.Enum)
    is_value = walk.inside_environment if is_member else isinstance(item, _TOLD_BY_VALUE)
    if not is_value or (not is_member and item != item):
        raise CaptureError(
            f"{format_path(walk.path)}: {what} is a {type(item).__qualname__}, which a set or dict places by its "
            "address or by code of its own, so that another process would go through them in another order. Use a "
            "list, or numbers, text, tuples of them"
            + (" or enum members; or wrap the environment in perdure.gym.Recorded." if walk.inside_environment else ".")
        )


def _has_same_hash_everywhere(item: Any) -> bool:
    if isinstance(item, tuple):
        return all(map(_has_same_hash_everywhere, item))
    if isinstance(item, _SAME_HASH_EVERYWHERE) and not isinstance(item, enum.Enum):
        return True
    return not sys.flags.hash_randomization and item is not None


def _text(item: Any) -> str:
    if isinstance(item, frozenset | tuple):
        inner = map(_text, item)
        return f"({', '.join(inner if isinstance(item, tuple) else sorted(inner))})"
    return f"{full_name_of(type(item))} {item!r}"
