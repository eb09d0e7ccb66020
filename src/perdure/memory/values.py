"""Values that a look compares: which objects count as one value, what their digest is, how a reader sees them.

Nothing here runs code of the user: types are exact, or of libraries whose arrays and generators are known.
"""

import array
import enum
import gc
import itertools
import random
import sys
import types
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.format.digests import Digest
from perdure.format.tensors import contiguous_bytes
from perdure.memory.containers import CONTAINERS, base_of, is_subclass_of_container, plain_of
from perdure.tree.diff import LONGEST_INT_BITS
from perdure.tree.leaves import PLAIN_TYPES, Array, PRNGKey, children, memory_axes
from perdure.tree.snapshot import Component, Snapshot

DATA = "data"
"""Numbers, text, arrays of NumPy and JAX, and containers of nothing else: copied as a whole."""
LIVE = "live"
"""Generators and parameters, which others may refer to: changed in place."""
TENSOR = "tensor"
"""Other tensors: changed in place, too, but what `restore` returns is a new one."""
ITERATOR = "iterator"
"""Python's own iterators and counters, and generators (`yield`), by how far they are."""

MOST_ITEMS = 100_000
"""Of a container that is read as one value."""

_FLAT = (*PLAIN_TYPES, bytearray, array.array)
_ITERATORS = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))))
_OF_ITERATORS = (zip, enumerate, itertools.cycle, itertools.chain, itertools.islice)
"""Python's iterators over iterators; `__reduce__`, which is C, tells what they hold."""
_MOST_STEPS = 1_000_000
_TENSORS = frozenset({"Tensor", "Parameter", "Buffer"})
_TORCH_GENERATOR = "torch._C.Generator"
_JAX_ARRAYS = frozenset({"ArrayImpl", "PRNGKeyArray"})
_NUMPY_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_SHOWN = 60
_DEEPEST = 50


def kind_of(obj: Any) -> str | None:
    """Whether an object is one value: `DATA`, `LIVE`, `TENSOR` or `ITERATOR`; None if it is to be looked into."""
    kind = type(obj)
    if _is_flat(obj) or (kind in CONTAINERS and _is_data(obj, [MOST_ITEMS], 0)):
        return DATA
    if is_subclass_of_container(kind) and _is_data(plain_of(obj), [MOST_ITEMS], 0):
        return DATA
    if kind is random.Random or isinstance(obj, _NUMPY_GENERATORS):
        return LIVE
    if is_tensor(obj):
        return LIVE if obj.requires_grad and obj.is_leaf else TENSOR
    if f"{kind.__module__}.{kind.__name__}" == _TORCH_GENERATOR:
        return LIVE
    return ITERATOR if kind in (*_ITERATORS, *_OF_ITERATORS, itertools.count, types.GeneratorType) else None


def _is_flat(obj: Any) -> bool:
    kind = type(obj)
    if kind in _FLAT or isinstance(obj, np.generic | enum.Enum):
        return True
    if kind is np.ndarray:
        return not obj.dtype.hasobject
    return kind.__name__ in _JAX_ARRAYS and kind.__module__.partition(".")[0] in ("jax", "jaxlib")


def _is_data(obj: Any, left: list[int], depth: int) -> bool:
    """Whether a container holds nothing but data, and not too much of it; one that holds itself does not."""
    left[0] -= len(obj)
    if left[0] < 0 or depth > _DEEPEST:
        return False
    parts = [*obj.keys(), *obj.values()] if isinstance(obj, dict) else obj
    return all(_is_flat(part) or (type(part) in CONTAINERS and _is_data(part, left, depth + 1)) for part in parts)


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
    obj = plain_of(obj)
    kind = type(obj)
    if isinstance(obj, enum.Enum):
        digest.update(f"{obj._name_}={obj._value_!r}".encode())  # a flag that is 0 has no name
    elif kind in PLAIN_TYPES:
        digest.update(repr(obj).encode("utf-8", "surrogatepass") if not isinstance(obj, int) else b"%x" % obj)
    elif kind in (bytearray, array.array):
        digest.update(bytes(obj))
    elif kind in (set, frozenset):
        _feed_set(digest, obj, resolver)
    elif kind in CONTAINERS:
        _feed_container(digest, obj, resolver)
    elif kind_of(obj) == ITERATOR:
        digest.update(position(obj, resolver).encode())
    else:
        has_graph = is_tensor(obj) and obj.grad_fn is not None
        plain = sys.modules["torch"].Tensor.detach(obj) if has_graph else obj
        _feed_tree(digest, Walk(resolver).capture(plain, "value"))
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


def memory_of(obj: Any) -> tuple[str, int]:
    """What tells that two values are one memory: arrays and tensors by the memory they view, others by identity."""
    if type(obj) is np.ndarray:
        root = obj
        while isinstance(root.base, np.ndarray):
            root = root.base
        return ("memory", root.__array_interface__["data"][0]) if root.nbytes else ("object", id(obj))
    if is_tensor(obj):
        with suppress(RuntimeError, NotImplementedError):  # a sparse one
            if address := sys.modules["torch"].Tensor.untyped_storage(obj).data_ptr():
                return "memory", address
    return "object", id(obj)


def is_tensor(obj: Any) -> bool:
    """Whether it is one of PyTorch."""
    return type(obj).__module__.partition(".")[0] == "torch" and type(obj).__name__ in _TENSORS


def shown(obj: Any) -> str:
    """A value as a person reads it, shortened."""
    kind = type(obj)
    if isinstance(obj, enum.Enum):
        return f"{kind.__qualname__}.{obj._name_}"
    if kind is int and obj.bit_length() > LONGEST_INT_BITS:  # Python refuses to write it out
        return f"an int of {obj.bit_length()} bits"
    if kind in PLAIN_TYPES or isinstance(obj, np.generic):
        text = repr(obj)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if kind in CONTAINERS or is_subclass_of_container(kind):
        return f"{kind.__name__} of {base_of(kind).__len__(obj)}"
    if kind_of(obj) == ITERATOR:
        opaque = kind is types.GeneratorType or kind in _OF_ITERATORS
        return kind.__name__ if opaque else f"{kind.__name__}, {position(obj)}"
    if is_tensor(obj) or _is_flat(obj):
        return f"{obj.dtype}[{', '.join(map(str, obj.shape))}]" if hasattr(obj, "dtype") else kind.__name__
    return kind.__name__


def position(iterator: Any, resolver: Resolver | None = None) -> str:
    """How far an iterator is: what is left of it, what a counter gives next, where a generator stands with what."""
    if type(iterator) is types.GeneratorType:
        return _position_of_generator(iterator, resolver or Resolver())
    if type(iterator) in _OF_ITERATORS:
        return _position_of_parts(iterator, resolver or Resolver())
    return repr(iterator) if type(iterator) is itertools.count else f"{iterator.__length_hint__()} left"


def _position_of_parts(iterator: Any, resolver: Resolver) -> str:
    """By the iterators that one draws from, and what it has kept of them.

    Raises:
        CaptureError: Python does not tell (those of `itertools` from 3.14 on).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            told = iterator.__reduce__()
    except TypeError as error:
        raise CaptureError(f"a {type(iterator).__name__} whose position Python does not tell.") from error
    digest = Digest()
    left = list(told[1:])
    while left:
        part = left.pop()
        if type(part) is tuple:
            left += part
        elif kind_of(part) is not None:
            digest.update(f"{digest_of_value(part, resolver)};".encode())
    return digest.text()


def _position_of_generator(generator: types.GeneratorType, resolver: Resolver) -> str:
    frame = generator.gi_frame
    if frame is None or generator.gi_running:
        return "ended" if frame is None else "running"
    digest = Digest()
    digest.update(f"{frame.f_lasti}".encode())
    known = {id(value) for value in frame.f_locals.values()}
    hidden = [part for part in gc.get_referents(generator) if type(part) in _ITERATORS and id(part) not in known]
    for name, value in [*sorted(frame.f_locals.items()), *(("for", part) for part in hidden)]:
        if value is not generator and kind_of(value) is not None:
            digest.update(f"{name}={digest_of_value(value, resolver)};".encode())
    return digest.text()


def advance(iterator: Any, to: str, resolver: Resolver) -> None:
    """Takes an iterator to a later position.

    Raises:
        CaptureError: it does not get there.
    """
    for _ in range(_MOST_STEPS):
        if position(iterator, resolver) == to:
            return
        try:
            next(iterator)
        except StopIteration:
            break
    raise CaptureError("it is an iterator, and cannot be taken to where it stood.")


def packed(values: Mapping[int, Any], resolver: Resolver) -> tuple[Snapshot, dict[int, str]]:
    """Values as one snapshot, each by its number, and why some of them are not in it."""
    tree, made, problems = {}, {}, {}
    for at, value in values.items():
        walk = Walk(resolver, at=(PART,))
        try:
            kept = position(value, resolver) if kind_of(value) == ITERATOR else plain_of(value)
            tree[str(at)] = walk.capture(kept, str(at))
        except (CaptureError, RuntimeError) as error:
            problems[at] = str(error)
            continue
        made |= walk.made
    return Snapshot(
        {PART: Component("dict", tree, {}, "exact-snapshot", "full state captured", made)}, 0, 0, 0
    ), problems


PART = "values"
"""The one component of such a snapshot."""
