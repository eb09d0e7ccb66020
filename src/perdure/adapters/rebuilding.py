"""What may be replaced by whatever was saved: data that nobody knows by identity, and that a tree alone can make."""

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

from perdure.adapters.resolve import WITHOUT_TARGET
from perdure.adapters.walk import PLAIN_ADAPTERS, Walk
from perdure.contract.facts import LONGEST_TEXT
from perdure.format.digests import digest_of
from perdure.tree.leaves import PLAIN_TYPES, Array, Tree

_SEQUENCES = (list, tuple, deque, set, frozenset)
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_CONTAINERS = _SEQUENCES + _MAPPINGS
_TREES = {dict: "dict", list: "list", tuple: "tuple"}


def gives_way(value: Any, walk: Walk) -> bool:
    """Whether a target holds nothing that must stay: no parameter, module, function, generator of its own."""
    kind = type(value)
    if kind in PLAIN_TYPES:
        return True
    if kind in _SEQUENCES:
        return all(gives_way(item, walk) for item in value)
    if kind in _MAPPINGS:
        return all(gives_way(item, walk) for item in value.values())
    adapter = walk.adapter_of(value).id
    return adapter in PLAIN_ADAPTERS or adapter in WITHOUT_TARGET


def is_of_kind(value: Any, saved: Tree, made: str | None, walk: Walk) -> bool:
    """Whether the saved tree, which the adapter `made` made (None for a plain one), is one of a value of this kind."""
    adapter = walk.adapter_of(value).id
    if made is not None or adapter not in PLAIN_ADAPTERS:
        return made == adapter
    if isinstance(saved, Array):
        return adapter == ("numpy-scalar" if saved.scalar else "numpy-array")
    return adapter == _TREES.get(type(saved), "plain")


def skeleton(value: Any, walk: Walk) -> str | None:
    """Where in a value stand parts that no tree can make, which a fresh start must therefore hold.

    None where there are none, and for a function or class, which is a fact already.
    """
    if gives_way(value, walk) or (type(value) not in _CONTAINERS and walk.adapter_of(value).kind == "fact"):
        return None
    text = _skeleton(value, walk)
    return text if len(text) <= LONGEST_TEXT else f"{type(value).__name__}, {digest_of(text.encode())}"


def _skeleton(value: Any, walk: Walk) -> str:
    if gives_way(value, walk):
        return "data"
    if type(value) in _SEQUENCES:
        return f"{type(value).__name__}({', '.join(_skeleton(item, walk) for item in value)})"
    if type(value) in _MAPPINGS:
        parts = (f"{key!r}: {_skeleton(item, walk)}" for key, item in value.items())
        return f"{type(value).__name__}({', '.join(parts)})"
    return walk.adapter_of(value).id
