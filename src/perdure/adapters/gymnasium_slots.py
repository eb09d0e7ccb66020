"""What may come back into one place of an environment, whatever it holds there now, and how it does.

The saved tree decides. A target's own part takes the state if it is of the same kind and has taken none so far;
otherwise a new one is made. What cannot be made (environments, spaces, functions) must be there.
"""

from collections import deque
from types import MappingProxyType
from typing import Any

import numpy as np

from perdure.adapters.gymnasium_class_shapes import Member, NamedTuple, Object
from perdure.adapters.gymnasium_display import is_display
from perdure.adapters.gymnasium_objects import Held
from perdure.adapters.gymnasium_shapes import (
    DefaultDict,
    DefaultDictOfFunction,
    Deque,
    Dict,
    FrozenSet,
    Method,
    Ordered,
    Pairs,
    Sequence,
    Set,
    Table,
    Tuple,
)
from perdure.adapters.numpy_random import bit_generator_of, new_generator
from perdure.adapters.resolve import WITHOUT_TARGET
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Alias, Tree
from perdure.tree.paths import Step

_BUILD = "Build it as the run did: only plain data, plain Python objects and generators can come back where nothing is."

_OF_MADE = MappingProxyType(
    {
        "python-object": Object(),
        "held-enum": Member(),
        "held-named-tuple": NamedTuple(),
        "set": Set(),
        "frozen-set": FrozenSet(),
        "pairs": Pairs(),
        "bound-method": Method(),
        "deque": Deque(),
        "ordered-dict": Ordered(),
        "counter": Table(),
        "default-dict": DefaultDict(),
        "default-dict-of-function": DefaultDictOfFunction(),
    }
)
_OF_TREE = MappingProxyType({list: Sequence(), tuple: Tuple(), dict: Dict()})


def check_slot(value: Any, saved: Tree, name: Step, walk: Walk) -> list[Finding]:
    """Why `saved` cannot come back at `name`, which holds `value` now, or None if nothing is there."""
    if _stays(value, saved, name, walk) or _is_generator(value, saved, walk):
        return []
    if isinstance(saved, Alias):
        return walk.check(value, saved, name) if _must_stay(value, walk) else []
    if walk.is_plain(saved, name) and not _must_stay(value, walk):
        return []
    shape = _shape_of(saved, walk.made_at(name))
    if shape is not None:
        return walk.at(name, lambda: _check_parts(shape, value, saved, walk))
    if value is None or isinstance(walk.adapter_of(value), Held):
        return [walk.finding(summary(saved), "nothing" if value is None else type(value).__name__, _BUILD, name)]
    return walk.check(value, saved, name)


def restore_slot(value: Any, saved: Tree, name: Step, walk: Walk) -> Any:
    """What `name` holds after the restore."""
    if _stays(value, saved, name, walk):
        return value
    if isinstance(saved, Alias) or (walk.is_plain(saved, name) and not _must_stay(value, walk)):
        return _in_place(value, walk.rebuild_at(saved, name))
    shape = _shape_of(saved, walk.made_at(name))
    if shape is not None:
        return walk.at(name, lambda: _restore_parts(shape, value, saved, walk))
    if _is_generator(value, saved, walk) and not isinstance(value, np.random.Generator):
        value = new_generator(saved)
    return walk.restore(value, saved, name)


def check_here(value: Any, saved: Tree, walk: Walk) -> list[Finding]:
    """The same at the walk's own place, for a target whose own parts are made anew where they do not fit."""
    shape = _shape_of(saved, walk.made_here)
    if shape is None:
        return [walk.finding(summary(saved), type(value).__name__, _BUILD)]
    return _check_parts(shape, value, saved, walk)


def restore_here(value: Any, saved: Tree, walk: Walk) -> Any:
    """What stands at the walk's own place after the restore."""
    shape = _shape_of(saved, walk.made_here)
    return value if shape is None else _restore_parts(shape, value, saved, walk)


def _check_parts(shape: Sequence, value: Any, saved: Tree, walk: Walk) -> list[Finding]:
    problem = shape.problem(value, saved)
    if problem is not None:
        return [walk.finding(*problem, _BUILD)]
    parts, wanted = shape.parts(shape.target(value, saved, walk)), shape.saved_parts(saved)
    lost = [step for step in parts if step not in wanted and _must_stay(parts[step], walk)]
    findings = [found for step, child in wanted.items() for found in check_slot(parts.get(step), child, step, walk)]
    if lost or (findings and type(value) in (list, tuple) and len(parts) != len(wanted)):
        return [walk.finding(summary(saved), f"{type(value).__name__} of {len(parts)}", "Build it as the run did.")]
    return findings


def _restore_parts(shape: Sequence, value: Any, saved: Tree, walk: Walk) -> Any:
    target = shape.target(value, saved, walk)
    parts = shape.parts(target)
    made = shape.begin(value, target, saved)
    if made is not None:
        walk.know(made)
    restored = {
        step: restore_slot(parts.get(step), child, step, walk) for step, child in shape.saved_parts(saved).items()
    }
    result = shape.finish(made, value, saved, restored)
    walk.know(result)
    return result


def _shape_of(saved: Tree, made: str | None) -> Sequence | None:
    """The shape of a saved tree that the adapter `made` made, None for a plain one; None if it has none."""
    return _OF_MADE.get(made) if made is not None else _OF_TREE.get(type(saved))


def _stays(value: Any, saved: Tree, name: Step, walk: Walk) -> bool:
    """Whether the target keeps what it shows itself with."""
    return is_display(value) and (saved is None or walk.made_at(name) == "display")


def _must_stay(value: Any, walk: Walk) -> bool:
    """Whether a target holds what no tree can make: environments, spaces, functions."""
    if value is None or isinstance(value, np.random.Generator | np.ndarray):
        return False
    if type(value) in (list, tuple, deque):
        return any(_must_stay(item, walk) for item in value)
    if isinstance(value, dict):
        return any(_must_stay(item, walk) for item in value.values())
    adapter = walk.adapter_of(value)
    return adapter.kind in ("live", "fact") and adapter.id not in WITHOUT_TARGET


def _in_place(value: Any, restored: Any) -> Any:
    """An array that looks into the memory of another object, not of an array, must go on looking there."""
    if not (isinstance(value, np.ndarray) and isinstance(restored, np.ndarray)):
        return restored
    if not _is_foreign(value) or value.shape != restored.shape or value.dtype != restored.dtype:
        return restored
    np.copyto(value, restored)
    return value


def _is_foreign(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return not isinstance(base, np.ndarray | bytes) and array.flags.writeable


def _is_generator(value: Any, saved: Tree, walk: Walk) -> bool:
    """Whether a Generator can come back here, for one is there or can be made; or go, where there was none yet."""
    if isinstance(value, np.random.Generator):
        return saved is None
    return bit_generator_of(saved) is not None and not _must_stay(value, walk)
