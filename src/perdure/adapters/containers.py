"""Containers: dict, list, tuple, deque, named tuples, dataclasses, partials."""

import copy
import dataclasses
from array import array
from collections import Counter, deque
from collections import OrderedDict as PythonOrderedDict
from functools import cached_property
from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.resolve import WITHOUT_TARGET
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_of
from perdure.contract.naming import name_of
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Tree
from perdure.tree.paths import format_path

Children = dict[Any, Any]

GROWING = "A list, deque or table that grows must hold plain data; else build it with as many parts as the run did."


class Container(ExactAdapter):
    """What containers share: children are checked and restored one by one, by key."""

    kind: Kind = "container"

    def check_children(self, children: Children, tree: Tree, walk: Walk) -> list[Finding]:
        """Findings of all children, and of keys that only one side has."""
        if not isinstance(tree, dict):
            return [walk.finding(summary(tree), f"{len(children)} named parts", "Build it as the run did.")]
        advice = "Build it with the same parts as the run did."
        findings = []
        for key in [*tree, *(key for key in children if key not in tree)]:
            if key not in children:
                findings.append(walk.finding(summary(tree[key]), "missing", advice, key))
            elif key not in tree:
                findings.append(walk.finding("missing", type(children[key]).__name__, advice, key))
            else:
                findings += walk.check(children[key], tree[key], key)
        return findings

    def restore_children(self, children: Children, tree: Tree, walk: Walk) -> Children:
        """The restored children, in saved order."""
        return {key: walk.restore(children[key], child, key) for key, child in tree.items()}


class Dict(Container):
    """Dicts with str or int keys; the saved order is restored."""

    id = "dict"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the children's trees.

        Raises:
            CaptureError: a key is neither text nor an int.
        """
        for key in obj:
            if type(key) not in (str, int):
                problem = f"dict key {key!r} is neither a str nor an int. Use such keys, or a list of pairs."
                raise CaptureError(f"{format_path(walk.path)}: {problem}")
        return {key: walk.capture(child, key) for key, child in obj.items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The keys must be the same, unless both sides hold nothing but plain data."""
        if _is_of_others(walk, "ordered-dict"):  # either may come back as the other, as state dicts do
            return [walk.finding(f"a {walk.made_here}", f"a {self.id}", "Build it as the run did.")]
        if self._is_free(obj, tree, walk):
            return []
        return self.check_children(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new dict of the target's type; the same one if every child was restored in place."""
        if self._is_free(obj, tree, walk):
            return type(obj)(walk.rebuild(tree))
        restored = self.restore_children(obj, tree, walk)
        unchanged = walk.inside_live and all(restored[key] is obj[key] for key in obj)
        return obj if unchanged else type(obj)(restored)

    def _is_free(self, obj: Any, tree: Tree, walk: Walk) -> bool:
        """Whether the keys may differ."""
        return type(tree) is dict and all(map(_is_plain_leaf_or_container, obj.values())) and walk.holds_plain(tree)


class Namespace(Container):
    """`argparse.Namespace`: the dict of its attributes."""

    id = "namespace"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the attributes' trees, by name, sorted: options that are declared in another order agree."""
        return {name: walk.capture(child, name) for name, child in sorted(vars(obj).items())}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The attributes must be the same."""
        return self.check_children(vars(obj), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new namespace; the same one if every attribute was restored in place."""
        restored = self.restore_children(vars(obj), tree, walk)
        unchanged = walk.inside_live and all(restored[name] is value for name, value in vars(obj).items())
        return obj if unchanged else type(obj)(**restored)


class List(Container):
    """Lists. A list of plain data may have grown since the start."""

    id = "list"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A list of the children's trees."""
        return [walk.capture(child, at) for at, child in enumerate(obj)]

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The length must be the same, unless both sides hold nothing but plain data."""
        if _is_of_others(walk):
            return [walk.finding(f"a {walk.made_here}", f"a {self.id}", "Build it as the run did.")]
        if _is_free_list(obj, tree, walk):
            return []
        return check_sequence(obj, tree, list, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new list; the same one if every child was restored in place."""
        if _is_free_list(obj, tree, walk):
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


ITEMS, MAXLEN = "items", "maxlen"


class Deque(Container):
    """Deques, with their maximal length; one of plain data may have grown since the start."""

    id = "deque"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Maximal length and items."""
        return {MAXLEN: obj.maxlen, ITEMS: walk.capture(list(obj), ITEMS)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The maximal length must be the same; the items as for lists."""
        if _is_of_others(walk, self.id) or not isinstance(tree, dict) or tree.keys() != {MAXLEN, ITEMS}:
            return [walk.finding(summary(tree), "a deque", "Build it as the run did.")]
        if tree[MAXLEN] != obj.maxlen:
            return [walk.finding(f"maxlen {tree['maxlen']}", f"maxlen {obj.maxlen}", "Use the run's maxlen.")]
        return walk.check(list(obj), tree[ITEMS], ITEMS)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new deque; the same one if every item was restored in place."""
        items = walk.restore(list(obj), tree[ITEMS], ITEMS)
        unchanged = walk.inside_live and len(items) == len(obj) and all(map(_is, items, obj))
        return obj if unchanged else deque(items, tree[MAXLEN])


def rebuild_deque(tree: Tree, walk: Walk) -> Any:
    """A deque without a target."""
    return deque(walk.rebuild_at(tree[ITEMS], ITEMS), tree[MAXLEN])


class BoundMethod(Container):
    """Methods: the function is a fact, the object it is bound to is state."""

    id = "bound-method"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The object's tree."""
        walk.fact(f"method {obj.__func__.__qualname__}")
        return {"self": walk.capture(obj.__self__, "self")}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The object's findings."""
        return self.check_children({"self": obj.__self__}, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The same method of the restored object."""
        restored = self.restore_children({"self": obj.__self__}, tree, walk)["self"]
        return obj if restored is obj.__self__ else obj.__func__.__get__(restored)


class NamedTuple(Container):
    """Named tuples, stored by field name; their type comes from the target."""

    id = "named-tuple"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the fields' trees; the class is a fact."""
        walk.fact(name_of(type(obj)))
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
    """Dataclasses, stored by field name; their type comes from the target."""

    id = "dataclass"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the fields' trees; the class is a fact.

        Raises:
            CaptureError: a field is not set, or the object holds more than its fields.
        """
        walk.fact(name_of(type(obj)))
        _refuse_more_than_fields(obj, walk)
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


def _refuse_more_than_fields(obj: Any, walk: Walk) -> None:
    names = {f.name for f in dataclasses.fields(obj)}
    unset = sorted(name for name in names if not hasattr(obj, name))
    cached = {
        name for cls in type(obj).__mro__ for name, kept in vars(cls).items() if isinstance(kept, cached_property)
    }
    more = sorted(getattr(obj, "__dict__", {}).keys() - names - cached)
    if unset or more:
        problem = f"its fields {unset} are not set" if unset else f"it holds {more} beside its fields"
        message = f"{format_path(walk.path)}: a {type(obj).__qualname__} is a dataclass, but {problem}."
        raise CaptureError(f"{message} Make them fields, or give the class state_dict() and load_state_dict().")


def _fields_of(obj: Any) -> Children:
    return {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj)}


class Partial(Container):
    """`functools.partial`: the function is a fact, what it binds is state."""

    id = "partial"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The bound arguments' trees; what the function's own closure binds are facts."""
        for below, text in facts_of(obj.func):
            walk.fact(text if below else f"partial of {text}", *(("function", *below) if below else ()))
        return {"args": walk.capture(obj.args, "args"), "keywords": walk.capture(dict(obj.keywords), "keywords")}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The arguments must be bound alike."""
        return self.check_children({"args": obj.args, "keywords": dict(obj.keywords)}, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new partial of the same function; the same one if everything bound was restored in place."""
        bound = self.restore_children({"args": obj.args, "keywords": dict(obj.keywords)}, tree, walk)
        same_keywords = all(bound["keywords"][name] is value for name, value in obj.keywords.items())
        if bound["args"] is obj.args and same_keywords:
            return obj
        return type(obj)(obj.func, *bound["args"], **bound["keywords"])


def _is_of_others(walk: Walk, *own: str) -> bool:
    """Whether the saved tree at this place only looks like that of the kind at hand: a set's is a list, too."""
    return walk.made_here in WITHOUT_TARGET and walk.made_here not in own


def check_sequence(obj: Any, tree: Tree, kind: type, walk: Walk) -> list[Finding]:
    """Findings of a sequence's items; another length or kind is one finding."""
    if type(tree) is not kind or len(tree) != len(obj):
        return [walk.finding(summary(tree), f"{kind.__name__} of {len(obj)}", GROWING)]
    return [finding for at, child in enumerate(obj) for finding in walk.check(child, tree[at], at)]


def _is_plain_leaf_or_container(obj: Any) -> bool:
    """Whether a target is plain data, whose shape is free: a history may grow, a table may gain keys."""
    if type(obj) in (dict, PythonOrderedDict, Counter):
        return all(map(_is_plain_leaf_or_container, obj.values()))
    if type(obj) in (list, tuple, set, frozenset):
        return all(map(_is_plain_leaf_or_container, obj))
    return type(obj) in PLAIN_TYPES or type(obj) in (bytearray, array)


def _is_free_list(obj: Any, tree: Tree, walk: Walk) -> bool:
    """Whether a list's length is free: plain data or NumPy arrays on both sides."""
    is_plain = all(_is_plain_leaf_or_container(child) or type(child).__module__ == "numpy" for child in obj)
    return type(tree) is list and is_plain and walk.holds_plain(tree)


def _is(a: object, b: object) -> bool:
    return a is b
