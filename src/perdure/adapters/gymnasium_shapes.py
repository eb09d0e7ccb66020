"""Shapes: how a part of an environment that is made of parts comes back from its saved tree.

A shape says which target may be used again, which parts it has, and puts the restored parts together. Something
mutable exists before its parts do, for one of them may hold it again.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from types import MethodType
from typing import Any

from perdure.adapters.containers import ITEMS
from perdure.adapters.tables import factory_of
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Tree, children

Parts = dict[Any, Any]


class Sequence:
    """A list."""

    kind: type = list

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """What was saved and why it cannot be made here; None if it can."""

    def target(self, value: Any, saved: Tree, walk: Walk) -> Any:
        """What of the target is used again: itself or its parts. None for nothing."""
        return value if type(value) is self.kind and walk.claim(value) else None

    def saved_parts(self, saved: Tree) -> Parts:
        """The parts' trees, by step."""
        return dict(children(saved))

    def parts(self, target: Any) -> Parts:
        """What the target has at these steps now."""
        return {} if target is None else dict(children(target))

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """The object before its parts; None if it cannot exist without them."""
        return []

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """The object with its parts."""
        made.extend(parts.values())
        return made


class Tuple(Sequence):
    """A tuple."""

    kind = tuple

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """Nothing."""

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """The tuple."""
        return tuple(parts.values())


class Dict(Sequence):
    """A dict with text and integers as keys."""

    kind: type = dict

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return self.kind()

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """In the saved order."""
        made.update(parts)
        return made


class Ordered(Dict):
    """An ordered dict."""

    kind = OrderedDict


class Deque(Sequence):
    """A deque."""

    kind = deque

    def saved_parts(self, saved: Tree) -> Parts:
        """One list."""
        return {ITEMS: saved[ITEMS]}

    def parts(self, target: Any) -> Parts:
        """One list."""
        return {} if target is None else {ITEMS: list(target)}

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return deque(maxlen=saved["maxlen"])

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """In order."""
        made.extend(parts[ITEMS])
        return made


class Table(Sequence):
    """A counter."""

    kind: type = Counter

    def saved_parts(self, saved: Tree) -> Parts:
        """One dict, or one list of pairs."""
        return {ITEMS: saved[ITEMS]}

    def parts(self, target: Any) -> Parts:
        """The same of the target, whose keys may be of another sort."""
        if target is None:
            return {}
        has_plain_keys = all(type(key) in (str, int) for key in target)
        return {ITEMS: dict(target) if has_plain_keys else list(target.items())}

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return self.kind()

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """In the saved order. A counter's own `update` would count the pairs."""
        dict.update(made, parts[ITEMS])
        return made


class DefaultDict(Table):
    """A `defaultdict` of a kind that the tree names."""

    kind: type = defaultdict

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return defaultdict(factory_of(saved))


class DefaultDictOfFunction(DefaultDict):
    """A `defaultdict` of a function: the target's own, and a fact."""

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """Functions are not made from a file."""
        if isinstance(value, defaultdict):
            return None
        return "a defaultdict of a function", "nothing" if value is None else type(value).__name__

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return defaultdict(value.default_factory)


class Pairs(Sequence):
    """A dict with other keys: its values belong to those of equal position, for keys are values themselves."""

    kind = dict

    def parts(self, target: Any) -> Parts:
        """The pairs."""
        return {} if target is None else dict(enumerate(target.items()))

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return {}

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """In the saved order."""
        made.update(parts.values())
        return made


class Set(Sequence):
    """A set of values."""

    kind = set

    def parts(self, target: Any) -> Parts:
        """None is used again: items are values."""
        return {}

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """An empty one."""
        return set()

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """Its items, added in the saved order."""
        made.update(parts.values())
        return made


class FrozenSet(Set):
    """A frozen set of values."""

    kind = frozenset

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """Nothing."""

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """Its items, added in the saved order."""
        return frozenset(parts.values())


class Method(Sequence):
    """A method of an object: the function is the target's own, and a fact."""

    kind = MethodType

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """Functions are not made from a file."""
        return None if isinstance(value, MethodType) else ("a method", "nothing" if value is None else "no method")

    def parts(self, target: Any) -> Parts:
        """The object it is bound to."""
        return {} if target is None else {"self": target.__self__}

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """Nothing."""

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """Bound to the restored object."""
        return value if parts["self"] is value.__self__ else value.__func__.__get__(parts["self"])
