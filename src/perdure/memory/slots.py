"""Slots: the place where a value stands, so that another one can be put there."""

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FrameType
from typing import Any

import numpy as np

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.memory.containers import base_of, plain_of
from perdure.memory.values import ITERATOR, LIVE, PART, TENSOR, advance, is_tensor, kind_of
from perdure.tree.snapshot import Snapshot

Put = Callable[[Any], None]
"""Puts a value into a slot."""


@dataclass(frozen=True)
class Target:
    """One value of a look."""

    value: Any
    """What stands there now."""
    put: Put | None
    """How another one gets there; None: the holder cannot be changed."""


def of_local(frame: FrameType, name: str) -> Put:
    """A local variable, one of an enclosing function included."""

    def put(value: Any) -> None:
        found = frame.f_locals
        found[name] = value
        if sys.version_info < (3, 13):  # later ones write through
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

    return put


def of_cell(cell: CellType) -> Put:
    """A variable that a closure binds."""

    def put(value: Any) -> None:
        cell.cell_contents = value

    return put


def of_item(holder: Any, key: Any) -> Put:
    """An entry of a dict, a list or a deque; of an object's or a module's dict."""

    def put(value: Any) -> None:
        holder[key] = value

    return put


def of_tuple(obj: tuple[Any, ...], put: Put | None) -> Callable[[int], Put | None]:
    """The items of a tuple, or of a named one: each makes a new tuple, with what was put before, and puts that."""
    items = list(tuple.__iter__(obj))

    def of_index(at: int) -> Put | None:
        def put_item(value: Any) -> None:
            items[at] = value
            if put is not None:
                put(tuple.__new__(type(obj), items))

        return None if put is None else put_item

    return of_index


def of_slot(descriptor: Any, obj: Any) -> Put:
    """An attribute in `__slots__`."""

    def put(value: Any) -> None:
        descriptor.__set__(obj, value)

    return put


def of_class(cls: type, name: str) -> Put:
    """An attribute of a class."""

    def put(value: Any) -> None:
        type.__setattr__(cls, name, value)

    return put


def put_saved(target: Target, snapshot: Snapshot, number: int, resolver: Resolver, *, in_place: bool) -> None:
    """Puts a value of `packed` where another one stands.

    Args:
        target: where.
        snapshot: the values.
        number: which of them.
        resolver: finds adapters.
        in_place: whether a container or an array is filled, so that whoever refers to it sees the new content.

    Raises:
        CaptureError: the two do not fit, or the place cannot be changed.
    """
    part, step = snapshot.components[PART], str(number)
    if step not in part.tree:
        raise CaptureError("the straight run could not copy its value.")
    tree, walk = part.tree[step], Walk(resolver, made=part.made, at=(PART,))
    kind = kind_of(target.value)
    if kind == ITERATOR:
        advance(target.value, tree, resolver)
    elif kind in (LIVE, TENSOR) and (in_place or not is_tensor(target.value)):
        if not in_place:
            raise CaptureError("others share it, which were restored as they should be.")
        _restore(walk, target.value, tree, step)
    elif not walk.is_plain(tree, step):
        raise CaptureError("its value cannot be made anew.")
    else:
        value = walk.rebuild_at(tree, step)
        if not (in_place and _fill(target.value, value)):
            if target.put is None:
                raise CaptureError("it stands in something that cannot be changed.")
            target.put(value)


def _restore(walk: Walk, obj: Any, tree: Any, step: str) -> None:
    if findings := walk.check(obj, tree, step):
        raise CaptureError(str(findings[0]))
    restored = walk.restore(obj, tree, step)
    for late in walk.postponed:
        late()
    if restored is not obj:  # a tensor outside of a module is a value to a run; here others may hold this very one
        if (restored.shape, restored.dtype) != (obj.shape, obj.dtype):
            raise CaptureError(f"a tensor of shape {tuple(obj.shape)} cannot take one of {tuple(restored.shape)}.")
        sys.modules["torch"].Tensor.detach(obj).copy_(restored)


def _fill(obj: Any, value: Any) -> bool:
    """Whether `obj` holds the content of `value` now."""
    if isinstance(obj, np.ndarray):
        same = type(value) is type(obj) and (obj.shape, obj.dtype) == (value.shape, value.dtype)
        if not same or not obj.flags.writeable:
            return False
        np.copyto(obj, value)
        return True
    if type(obj) is not type(value) and type(plain_of(obj)) is not type(value):
        return False
    if isinstance(obj, dict | set):
        base = base_of(type(obj))  # whatever a subclass makes of these methods
        base.clear(obj)
        base.update(obj, value)
        return True
    if isinstance(obj, bytearray):
        obj[:] = value
        return True
    if isinstance(obj, list | deque):
        if getattr(obj, "maxlen", None) != getattr(value, "maxlen", None):
            return False
        base = base_of(type(obj))
        base.clear(obj)
        base.extend(obj, value)
        return True
    return False
