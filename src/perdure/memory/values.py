"""Values that a look compares: which objects count as one value, what their digest is, how a reader sees them.

Nothing here runs code of the user: types are exact, or of libraries whose arrays and generators are known.
"""

import array
import enum
import itertools
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.format.digests import Digest
from perdure.format.tensors import contiguous_bytes
from perdure.tree.leaves import PLAIN_TYPES, Array, PRNGKey, children, memory_axes
from perdure.tree.snapshot import Component, Snapshot

DATA = "data"
"""Numbers, text, arrays of NumPy and JAX, and containers of nothing else: copied as a whole."""
LIVE = "live"
"""Generators and tensors, which others may refer to: changed in place."""
ITERATOR = "iterator"
"""Python's own iterators and counters, by how far they are."""

MOST_ITEMS = 100_000
"""Of a container that is read as one value."""

CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter)
_FLAT = (*PLAIN_TYPES, bytearray, array.array)
_ITERATORS = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))))
_MOST_STEPS = 10_000_000
_LIVE = frozenset({"Tensor", "Parameter", "Buffer", "Generator"})
_JAX_ARRAYS = frozenset({"ArrayImpl", "PRNGKeyArray"})
_NUMPY_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_SHOWN = 60


def kind_of(obj: Any) -> str | None:
    """Whether an object is one value: `DATA`, `LIVE` or `ITERATOR`; None if it is to be looked into."""
    kind = type(obj)
    if _is_flat(obj) or (kind in CONTAINERS and _is_data(obj, [MOST_ITEMS])):
        return DATA
    if kind is random.Random or isinstance(obj, _NUMPY_GENERATORS):
        return LIVE
    if kind.__module__.partition(".")[0] == "torch" and kind.__name__ in _LIVE:
        return LIVE
    return ITERATOR if kind in _ITERATORS or kind is itertools.count else None


def _is_flat(obj: Any) -> bool:
    kind = type(obj)
    if kind in _FLAT or isinstance(obj, np.generic | enum.Enum):
        return True
    if kind is np.ndarray:
        return not obj.dtype.hasobject
    return kind.__name__ in _JAX_ARRAYS and kind.__module__.partition(".")[0] in ("jax", "jaxlib")


def _is_data(obj: Any, left: list[int]) -> bool:
    """Whether a container holds nothing but data, and not too much of it."""
    left[0] -= len(obj)
    if left[0] < 0:
        return False
    parts = [*obj.keys(), *obj.values()] if isinstance(obj, dict) else obj
    return all(_is_flat(part) or (type(part) in CONTAINERS and _is_data(part, left)) for part in parts)


def digest_of_value(obj: Any, resolver: Resolver) -> str | None:
    """The digest of a value; None if it cannot be told.

    Args:
        obj: a value (`kind_of` is not None).
        resolver: finds the adapters of arrays and generators.
    """
    digest = Digest()
    try:
        _feed(digest, obj, resolver)
    except (CaptureError, RecursionError, RuntimeError):  # a container that holds itself; a tensor without memory
        return None
    return digest.text().partition(":")[2]


def _feed(digest: Digest, obj: Any, resolver: Resolver) -> None:
    kind = type(obj)
    digest.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if isinstance(obj, enum.Enum):
        digest.update(obj._name_.encode())
    elif kind in PLAIN_TYPES:
        digest.update(repr(obj).encode("utf-8", "surrogatepass") if not isinstance(obj, int) else b"%x" % obj)
    elif kind in (bytearray, array.array):
        digest.update(bytes(obj))
    elif kind in (set, frozenset):
        _feed_set(digest, obj, resolver)
    elif kind in CONTAINERS:
        _feed_container(digest, obj, resolver)
    elif kind_of(obj) == ITERATOR:
        digest.update(str(position(obj)).encode())
    else:
        _feed_tree(digest, Walk(resolver).capture(obj, "value"))
    digest.update(b")")


def _feed_set(digest: Digest, obj: Any, resolver: Resolver) -> None:
    """Whatever order its items have."""
    for text in sorted(digest_of_value(item, resolver) or "" for item in obj):
        digest.update(text.encode())


def _feed_container(digest: Digest, obj: Any, resolver: Resolver) -> None:
    for part in obj.items() if isinstance(obj, dict) else obj:
        for each in part if isinstance(obj, dict) else (part,):
            _feed(digest, each, resolver)


def _feed_tree(digest: Digest, tree: Any) -> None:
    """A captured value of a library."""
    if isinstance(tree, PRNGKey):
        digest.update(tree.implementation.encode())
        tree = tree.data
    if isinstance(tree, Array):
        digest.update(f"{tree.value.dtype}{tree.value.shape}{memory_axes(tree.value)}{tree.weak_type}".encode())
        digest.update(contiguous_bytes(tree.value))
        return
    if not isinstance(tree, dict | list | tuple):
        digest.update(repr(tree).encode())
    for step, child in children(tree):
        digest.update(f"[{step}]".encode())
        _feed_tree(digest, child)


def shown(obj: Any) -> str:
    """A value as a person reads it, shortened."""
    kind = type(obj)
    if isinstance(obj, enum.Enum):
        return f"{kind.__qualname__}.{obj._name_}"
    if kind in PLAIN_TYPES or isinstance(obj, np.generic):
        text = repr(obj) if not isinstance(obj, int) or obj.bit_length() < 1000 else f"an int of {obj.bit_length()} bits"
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if kind_of(obj) == ITERATOR:
        return f"{kind.__name__} at {position(obj)}"
    shape = getattr(obj, "shape", None) if not isinstance(obj, CONTAINERS) else None
    if shape is not None and hasattr(obj, "dtype"):
        return f"{obj.dtype}[{', '.join(map(str, shape))}]"
    return f"{kind.__name__} of {len(obj)}" if kind in CONTAINERS else kind.__name__


def position(iterator: Any) -> int:
    """How far an iterator is: how much is left of it, or the number that a counter gives next."""
    if type(iterator) is itertools.count:
        text = repr(iterator).removeprefix("count(").removesuffix(")").partition(",")[0]
        try:
            return int(text)
        except ValueError as error:
            raise CaptureError(f"{text}: a counter that does not count in whole numbers.") from error
    return -iterator.__length_hint__()


def advance(iterator: Any, to: int) -> None:
    """Takes an iterator of Python's own to a later position.

    Raises:
        CaptureError: it is further already, or it does not get there.
    """
    steps = 0
    while position(iterator) < to and steps < _MOST_STEPS:
        next(iterator)
        steps += 1
    if position(iterator) != to:
        raise CaptureError(f"an iterator at {position(iterator)} cannot be taken to {to}.")


def packed(values: Mapping[int, Any], resolver: Resolver) -> tuple[Snapshot, dict[int, str]]:
    """Values as one snapshot, each by its number, and why some of them are not in it."""
    tree, made, problems = {}, {}, {}
    for at, value in values.items():
        walk = Walk(resolver, at=(PART,))
        try:
            kept = position(value) if kind_of(value) == ITERATOR else value
            tree[str(at)] = walk.capture(kept, str(at))
        except (CaptureError, RuntimeError) as error:
            problems[at] = str(error)
            continue
        made |= walk.made
    return Snapshot({PART: Component("dict", tree, {}, "exact-snapshot", "full state captured", made)}, 0, 0, 0), problems


PART = "values"
"""The one component of such a snapshot."""
