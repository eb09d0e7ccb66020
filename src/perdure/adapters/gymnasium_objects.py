"""Plain Python objects, sets, enum members and named tuples that an environment holds.

Their classes are named in the tree: in mid-episode an environment holds objects that a fresh one has not made yet.
How they come back is the subject of `gymnasium_slots`, for it does not depend on what the target holds.
"""

import enum
from functools import partial
from typing import Any

import numpy as np

from perdure.adapters.containers import Container
from perdure.adapters.gymnasium_attributes import refuse_hidden_functions
from perdure.adapters.gymnasium_classes import attributes_of, class_name, constant_name
from perdure.adapters.resolve import load_function
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

CLASS = "class"
"""Beside the attributes; a keyword, which no attribute is called."""

CONSTANT = "constant"
"""Alone in its tree."""

_SAME_ORDER_EVERYWHERE = (bool, int, float, complex, np.number, np.bool_)


class Held(Container):
    """What these adapters share: a target's own part is used where it fits, else one is made."""

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Findings of the saved tree at this place."""
        return load_function("gymnasium_slots:check_here")(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved object."""
        return load_function("gymnasium_slots:restore_here")(obj, tree, walk)


class PlainObject(Held):
    """An object of a class that is written in Python: its class and its attributes."""

    id = "python-object"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class's name, and the attributes' trees; of a constant of its module, its name.

        Raises:
            CaptureError: an attribute hides state from a walk over attributes.
        """
        constant = constant_name(obj)
        if constant is not None:
            return {CONSTANT: constant}
        attributes = attributes_of(obj)
        refuse_hidden_functions(obj, attributes, walk)
        return {CLASS: class_name(type(obj)), **{name: walk.capture(part, name) for name, part in attributes.items()}}


class Member(Held):
    """Members of enums."""

    id = "held-enum"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class's name, and the member's; a combination of flags has none that tells it."""
        kind = type(obj)
        return {CLASS: class_name(kind), "member": obj.name if obj.name in kind.__members__ else obj.value}


class HeldNamedTuple(Held):
    """Named tuples."""

    id = "held-named-tuple"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class's name, and the items' trees."""
        items = tuple(walk.capture(part, at) for at, part in enumerate(obj))
        return {CLASS: class_name(type(obj)), "items": items}


class Set(Held):
    """Sets of values: numbers, text, enum members, tuples and frozen sets of them."""

    id = "set"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The items' trees, in an order that does not depend on the process.

        Raises:
            CaptureError: an item is an object, so that the set's order depends on where in memory its items lie.
        """
        return [walk.capture(item, at) for at, item in enumerate(_in_order(obj, walk))]


class FrozenSet(Set):
    """Frozen sets, likewise."""

    id = "frozen-set"
    has_identity = False


class Pairs(Held):
    """Dicts with other keys than text and integers: pairs, in the dict's own order."""

    id = "pairs"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A list of pairs of trees.

        Raises:
            CaptureError: a key is an object, which cannot be told by its value.
        """
        for key in obj:
            _refuse_object(key, "a dict's key", walk)
        return [walk.at(at, partial(_pair, key, value, walk)) for at, (key, value) in enumerate(obj.items())]


def _pair(key: Any, value: Any, walk: Walk) -> tuple[Tree, Tree]:
    return walk.capture(key, 0), walk.capture(value, 1)


def _in_order(items: Any, walk: Walk) -> list[Any]:
    for item in items:
        _refuse_object(item, "a set's item", walk)
    if all(map(_has_same_order_everywhere, items)):
        return list(items)  # whoever iterates over it meets them in this order, in every process
    return sorted(items, key=lambda item: (type(item).__name__, _text(item)))


def _has_same_order_everywhere(item: Any) -> bool:
    if type(item) is tuple:
        return all(map(_has_same_order_everywhere, item))
    return isinstance(item, _SAME_ORDER_EVERYWHERE) and not isinstance(item, enum.Enum)


def _text(item: Any) -> str:
    if isinstance(item, frozenset | tuple):
        inner = map(_text, item)
        return f"({', '.join(inner if isinstance(item, tuple) else sorted(inner))})"
    return f"{class_name(type(item))} {item!r}"


def _refuse_object(item: Any, what: str, walk: Walk) -> None:
    if isinstance(item, tuple | frozenset):
        for part in item:
            _refuse_object(part, what, walk)
    elif not isinstance(item, (type(None), str, bytes, enum.Enum, *_SAME_ORDER_EVERYWHERE)):
        raise CaptureError(
            f"{format_path(walk.path)}: {what} is a {type(item).__qualname__}, which a set or dict places by its "
            "address or by code of its own, so that another process would go through them in another order. Use a "
            "list, or numbers, text, tuples of them or enum members; or wrap the environment in perdure.gym.Recorded."
        )
