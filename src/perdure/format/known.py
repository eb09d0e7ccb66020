"""Known parts: what plain subtrees came to in the save before, for most of a state's structure never changes."""

import marshal
from collections.abc import Callable, Mapping
from types import MappingProxyType

from perdure.format.canonical import Json
from perdure.tree.leaves import Tree

Key = tuple[int, bytes]
"""How deep a subtree stands, which decides whether it may stand there, and the bytes that spell it."""


class Memory:
    """What one function made of subtrees that hold plain leaves alone. It must not look at where they stand."""

    def __init__(self, earlier: Mapping[Key, Json] = MappingProxyType({})) -> None:
        """Begins with what an `earlier` memory used; what is not used again is forgotten."""
        self._earlier = earlier
        self.used: dict[Key, Json] = {}
        """Everything made or found since."""

    def of(self, tree: Tree, depth: int, make: Callable[[], Json]) -> Json:
        """What `make` makes of the container `tree`, or made of an equal one."""
        try:
            # Version 2 spells every bit, type and order, and nothing else: later ones tell who else refers to a value.
            key = depth, marshal.dumps(tree, 2)
        except ValueError:  # it holds an array, an alias, a key or rows
            return make()
        found = self.used.get(key) or self._earlier.get(key) or make()
        self.used[key] = found
        return found


class Known:
    """The memories of one save: nodes for the manifest, and forms for digests."""

    def __init__(self, earlier: "Known | None" = None) -> None:
        """Begins with what the save before knew."""
        self.nodes = Memory(earlier.nodes.used if earlier else MappingProxyType({}))
        self.forms = Memory(earlier.forms.used if earlier else MappingProxyType({}))
