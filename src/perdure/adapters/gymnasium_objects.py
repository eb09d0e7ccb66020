"""Plain Python objects, sets, enum members and named tuples that an environment holds.

Their classes are named in the tree: in mid-episode an environment holds objects that a fresh one has not made yet.
How they come back is the subject of `gymnasium_slots`, for it does not depend on what the target holds.
"""

from functools import partial
from typing import Any

from perdure.adapters.containers import Container
from perdure.adapters.gymnasium_attributes import refuse_hidden_functions
from perdure.adapters.gymnasium_classes import attributes_of, class_name, constant_name
from perdure.adapters.resolve import load_function
from perdure.adapters.unordered import items_in_order, refuse_object
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.leaves import Tree

CLASS = "class"
"""Beside the attributes; a keyword, which no attribute is called."""

CONSTANT = "constant"
"""Alone in its tree."""


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
            CaptureError: an item is an object, so that the set's order depends on where in memory its items lie; or
                the order cannot be had again.
        """
        return [walk.capture(item, at) for at, item in enumerate(items_in_order(obj, walk))]


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
            refuse_object(key, "a dict's key", walk)
        return [walk.at(at, partial(_pair, key, value, walk)) for at, (key, value) in enumerate(obj.items())]


def _pair(key: Any, value: Any, walk: Walk) -> tuple[Tree, Tree]:
    return walk.capture(key, 0), walk.capture(value, 1)
