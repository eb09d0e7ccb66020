"""Containers: dict, list, tuple, deque, named tuples, dataclasses."""

import copy
import dataclasses
from collections import deque
from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.plain import is_plain
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.paths import Step

Children = dict[Any, Any]


class Container(ExactAdapter):
    """What containers share: children are checked and restored one by one, by key."""

    kind: Kind = "container"

    def check_children(self, children: Children, tree: Tree, walk: Walk) -> list[Finding]:
        """Findings of all children, and of keys that only one side has."""
        if not isinstance(tree, dict):
            return [walk.finding(summary(tree), f"{len(children)} named parts", "Build it as the run did.")]
        findings = []
        for key in [*tree, *(key for key in children if key not in tree)]:
            if key not in children:
                findings += absent(walk, key, saved=summary(tree[key]), found="missing")
            elif key not in tree:
                findings += absent(walk, key, saved="missing", found=type(children[key]).__name__)
            else:
                findings += walk.check(children[key], tree[key], key)
        return findings

    def restore_children(self, children: Children, tree: Tree, walk: Walk) -> Children:
        """The restored children, in saved order."""
        return {key: walk.restore(children[key], child, key) for key, child in tree.items()}


def absent(walk: Walk, step: Step, *, saved: str, found: str) -> list[Finding]:
    """The finding for a part that only one side has."""
    here = walk.finding(saved, found, "Build it with the same parts as the run did.")
    below = f"{here.key}/{step}" if here.key else str(step)
    return [dataclasses.replace(here, key=below)]


class Dict(Container):
    """Dicts with str or int keys; the saved order is restored."""

    id = "dict"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the children's trees."""
        return {key: walk.capture(child, key) for key, child in obj.items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The keys must be the same, unless the saved dict holds nothing but plain data."""
        if _is_free_dict(obj, tree):
            return []
        return self.check_children(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new dict of the target's type; the same one if every child was restored in place."""
        if _is_free_dict(obj, tree):
            return type(obj)(walk.rebuild(tree))
        restored = self.restore_children(obj, tree, walk)
        unchanged = walk.inside_live and all(restored[key] is obj[key] for key in obj)
        return obj if unchanged else type(obj)(restored)


def _is_free_dict(obj: Any, tree: Tree) -> bool:
    return isinstance(tree, dict) and is_plain(tree) and _all_plain(obj)


def _all_plain(obj: Any) -> bool:
    """Whether a target is plain data, whose shape is free: a history may grow, a table may gain keys."""
    if isinstance(obj, dict):
        return all(map(_all_plain, obj.values()))
    if type(obj) in (list, tuple, deque):
        return all(map(_all_plain, obj))
    return obj is None or type(obj) in (bool, int, float, complex, str, bytes)


class List(Container):
    """Lists. A list of plain data may have grown since the start."""

    id = "list"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A list of the children's trees."""
        return [walk.capture(child, at) for at, child in enumerate(obj)]

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The length must be the same, unless the saved list holds nothing but plain data."""
        if _is_free(obj, tree, list):
            return []
        return check_sequence(obj, tree, list, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new list; the same one if every child was restored in place."""
        if _is_free(obj, tree, list):
            return walk.rebuild(tree)
        restored = [walk.restore(child, tree[at], at) for at, child in enumerate(obj)]
        return obj if walk.inside_live and all(map(_is, restored, obj)) else restored


class Tuple(Container):
    """Tuples: fixed length."""

    id = "tuple"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A tuple of the children's trees."""
        return tuple(walk.capture(child, at) for at, child in enumerate(obj))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The length must be the same."""
        return check_sequence(obj, tree, tuple, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new tuple; the same one if every child was restored in place."""
        restored = tuple(walk.restore(child, tree[at], at) for at, child in enumerate(obj))
        return obj if all(map(_is, restored, obj)) else restored


class Deque(Container):
    """Deques of plain data, with their maximal length."""

    id = "deque"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Maximal length and items."""
        items = [walk.capture(child, at) for at, child in enumerate(obj)]
        return {"maxlen": obj.maxlen, "items": items}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The maximal length must be the same, and the items plain."""
        if not isinstance(tree, dict) or tree.keys() != {"maxlen", "items"}:
            return [walk.finding(summary(tree), "a deque", "Build it as the run did.")]
        if tree["maxlen"] != obj.maxlen:
            return [walk.finding(f"maxlen {tree['maxlen']}", f"maxlen {obj.maxlen}", "Use the run's maxlen.")]
        if is_plain(tree["items"]):
            return []
        return check_sequence(list(obj), tree["items"], list, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new deque."""
        if is_plain(tree["items"]):
            return deque(walk.rebuild(tree["items"]), tree["maxlen"])
        return deque((walk.restore(child, tree["items"][at], at) for at, child in enumerate(obj)), tree["maxlen"])


class NamedTuple(Container):
    """Named tuples, stored by field name; their type comes from the target."""

    id = "named-tuple"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the fields' trees."""
        return {name: walk.capture(getattr(obj, name), name) for name in obj._fields}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The fields must be the same."""
        return self.check_children(obj._asdict(), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new tuple of the same type; the same one if every field was restored in place."""
        restored = self.restore_children(obj._asdict(), tree, walk)
        if all(restored[name] is getattr(obj, name) for name in obj._fields):
            return obj
        return type(obj)(**restored)


class Dataclass(Container):
    """Dataclasses, stored by field name; their type, and whatever is no field, comes from the target."""

    id = "dataclass"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the fields' trees."""
        return {name: walk.capture(child, name) for name, child in _fields_of(obj).items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The fields must be the same."""
        return self.check_children(_fields_of(obj), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A copy with the restored fields; the same object if every field was restored in place."""
        fields = _fields_of(obj)
        restored = self.restore_children(fields, tree, walk)
        if all(restored[name] is fields[name] for name in fields):
            return obj
        result = copy.copy(obj)
        for name, value in restored.items():
            object.__setattr__(result, name, value)
        return result


def _fields_of(obj: Any) -> Children:
    return {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj)}


def check_sequence(obj: Any, tree: Tree, kind: type, walk: Walk) -> list[Finding]:
    """Findings of a sequence's items; another length or kind is one finding."""
    if type(tree) is not kind or len(tree) != len(obj):
        found = f"{kind.__name__} of {len(obj)}"
        return [walk.finding(summary(tree), found, "Build it with as many parts as the run did.")]
    return [finding for at, child in enumerate(obj) for finding in walk.check(child, tree[at], at)]


def _is_free(obj: Any, tree: Tree, kind: type) -> bool:
    """Whether a list's length is free: plain data on both sides."""
    numpy_or_plain = all(_all_plain(child) or type(child).__module__ == "numpy" for child in obj)
    return type(tree) is kind and is_plain(tree) and numpy_or_plain


def _is(a: object, b: object) -> bool:
    return a is b
