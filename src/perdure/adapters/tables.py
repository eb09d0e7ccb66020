"""Dicts of Python's `collections` that fill as they are used: `defaultdict` and `Counter`, under keys of many kinds."""

from collections import Counter as PythonCounter
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from types import FunctionType, MappingProxyType
from typing import Any

from perdure.adapters.adapter import Adapter
from perdure.adapters.containers import ITEMS, Container
from perdure.adapters.rebuilding import gives_way
from perdure.adapters.unordered import refuse_object
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_of
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

FACTORY = "factory"
"""Beside the items: the name of the kind that a `defaultdict` makes for a missing key."""

_KINDS = (int, float, complex, bool, str, bytes, list, tuple, dict, set, deque, OrderedDict, PythonCounter)
FACTORIES = MappingProxyType({kind.__name__: kind for kind in _KINDS})
"""Kinds that a file may name, for they are of Python itself."""


class Table(Container):
    """What both share: items as a dict, or as pairs where a key is neither text nor an integer, in their order."""

    has_identity = True
    name = ""

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The items.

        Raises:
            CaptureError: a key is an object, which cannot be told by its value.
        """
        return {ITEMS: walk.capture(contents(obj, walk), ITEMS)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Keys may differ where the items are data; other items must be there."""
        if walk.made_here not in (self.id, None) or not isinstance(tree, dict) or ITEMS not in tree:
            return [walk.finding(summary(tree), f"a {self.name}", "Build it as the run did.")]
        if self._is_free(obj, tree, walk):
            return []
        return walk.check(contents(obj, walk), tree[ITEMS], ITEMS)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new table; the same one if every item was restored in place."""
        if self._is_free(obj, tree, walk):
            return self.of(obj, walk.rebuild_at(tree[ITEMS], ITEMS))
        restored = self.of(obj, walk.restore(contents(obj, walk), tree[ITEMS], ITEMS))
        return obj if walk.inside_live and _are_the_same(restored, obj) else restored

    def of(self, obj: Any, items: Any) -> Any:
        """A table like `obj` with these items."""
        return type(obj)(items)

    def _is_free(self, obj: Any, tree: Tree, walk: Walk) -> bool:
        return walk.is_plain(tree[ITEMS], ITEMS) and all(gives_way(part, walk) for part in obj.values())


class Counter(Table):
    """`collections.Counter`."""

    id = "counter"
    name = "Counter"

    def of(self, obj: Any, items: Any) -> Any:
        """A counter."""
        return counter_of(items)


class DefaultDict(Table):
    """`collections.defaultdict` of a kind of Python's own, which the tree names."""

    id = "default-dict"
    name = "defaultdict"

    def variant(self, obj: Any) -> Adapter:
        """The adapter for this very one: the function of another is a fact."""
        factory = obj.default_factory
        return self if factory is None or FACTORIES.get(getattr(factory, "__name__", "")) is factory else _OF_FUNCTION

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The kind's name, and the items."""
        factory = obj.default_factory
        return {FACTORY: None if factory is None else factory.__name__, **super().capture(obj, walk)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The kind must be the same; the items as for other tables."""
        findings = super().check(obj, tree, walk)
        if not findings and factory_of(tree) is not obj.default_factory:
            saved, found = (f"defaultdict of {each}" for each in (tree[FACTORY], _name(obj.default_factory)))
            return [walk.finding(saved, found, "Build it as the run did.")]
        return findings

    def of(self, obj: Any, items: Any) -> Any:
        """One that makes the same."""
        return defaultdict(obj.default_factory, items)


class DefaultDictOfFunction(DefaultDict):
    """`collections.defaultdict` of a function or a class: a fact, and the target's own."""

    id = "default-dict-of-function"

    def variant(self, obj: Any) -> Adapter:
        """This one."""
        return self

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The items.

        Raises:
            CaptureError: what is called for a missing key may count, like the method of an iterator.
        """
        factory = obj.default_factory
        if not isinstance(factory, FunctionType | type):
            problem = f"a defaultdict calls {_name(factory)} for a missing key, whose state a checkpoint would miss"
            raise CaptureError(f"{format_path(walk.path)}: {problem}. Give it a function or a class.")
        for below, text in facts_of(factory):
            walk.fact(text if below else f"defaultdict of {text}", *((FACTORY, *below) if below else ()))
        return Table.capture(self, obj, walk)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The items'."""
        return Table.check(self, obj, tree, walk)


_OF_FUNCTION = DefaultDictOfFunction()


def contents(obj: Any, walk: Walk) -> Any:
    """The items as a dict or, if a key is neither text nor an integer, as a list of pairs.

    Raises:
        CaptureError: a key is an object.
    """
    if all(type(key) in (str, int) for key in obj):
        return dict(obj)
    for key in obj:
        refuse_object(key, f"a {type(obj).__name__}'s key", walk)
    return list(obj.items())


def counter_of(items: Any) -> Any:
    """A counter of a dict or of pairs; the class itself would count the pairs."""
    made = PythonCounter()
    dict.update(made, items)
    return made


def factory_of(tree: Tree) -> Any:
    """What a saved `defaultdict` makes for a missing key; None for one that makes nothing."""
    return None if tree[FACTORY] is None else FACTORIES.get(tree[FACTORY], FACTORY)


def rebuild_counter(tree: Tree, walk: Walk) -> Any:
    """A counter without a target."""
    return counter_of(walk.rebuild_at(tree[ITEMS], ITEMS))


def rebuild_default_dict(tree: Tree, walk: Walk) -> Any:
    """A `defaultdict` without a target."""
    return defaultdict(factory_of(tree), walk.rebuild_at(tree[ITEMS], ITEMS))


def _name(factory: Any) -> str:
    return getattr(factory, "__qualname__", None) or str(factory)


def _are_the_same(restored: Any, obj: Any) -> bool:
    pairs: Iterable[tuple[Any, Any]] = zip(restored.items(), obj.items(), strict=False)
    return len(restored) == len(obj) and all(new[0] == old[0] and new[1] is old[1] for new, old in pairs)
