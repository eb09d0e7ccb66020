"""One attribute of an object of PyTorch: what may come back into it, whatever it holds now."""

from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from perdure.adapters.containers import GROWING, ITEMS, MAXLEN
from perdure.adapters.numpy_random import bit_generator_of, new_generator
from perdure.adapters.rebuilding import gives_way, is_of_kind
from perdure.adapters.tables import contents, counter_of
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Alias, Tree, children
from perdure.tree.paths import Step

_SHELLS = MappingProxyType(
    {
        deque: lambda value, items: deque(items, value.maxlen),
        Counter: lambda value, items: counter_of(items),
        defaultdict: lambda value, items: defaultdict(value.default_factory, items),
    }
)
"""Containers whose parts stand in a list or dict inside their tree -> one like a given one, of other parts."""

_CONTAINERS = (list, tuple, dict, OrderedDict, *_SHELLS)


def check_slot(value: Any, saved: Tree, name: Step, walk: Walk) -> list[Finding]:
    """Why `saved` cannot become the attribute `name`, which holds `value` now, or None if it is not there."""
    if _is_free(value, saved, name, walk) or (saved is None and isinstance(value, np.random.Generator)):
        return []
    if value is None and bit_generator_of(saved) is not None:
        return []
    if value is None:
        advice = "Build it as the run did: only plain data and generators can come back where there is nothing yet."
        return [walk.finding(summary(saved), "nothing", advice, name)]
    if _is_container(value, saved):
        return walk.at(name, partial(_check_parts, value, saved, walk))
    return walk.check(value, saved, name)


def restore_slot(value: Any, saved: Tree, name: Step, walk: Walk) -> Any:
    """What the attribute `name` holds after the restore."""
    if _is_free(value, saved, name, walk):
        return _in_its_place(value, saved, name, walk)
    if saved is None and isinstance(value, np.random.Generator):
        return None
    if value is None and bit_generator_of(saved) is not None:
        value = new_generator(saved)
    if _is_container(value, saved):
        return walk.at(name, partial(_restore_parts, value, saved, walk))
    return walk.restore(value, saved, name)


def _is_free(value: Any, saved: Tree, name: Step, walk: Walk) -> bool:
    """Whether data takes the place of data, of whatever shape and kind: episodes begin with None, queues grow.

    The shape and the dtype of a tensor that a fresh start has, and its plain values, are settings, so that a change of
    the script is found all the same.
    """
    return (isinstance(saved, Alias) or walk.is_plain(saved, name)) and gives_way(value, walk)


def _in_its_place(value: Any, saved: Tree, name: Step, walk: Walk) -> Any:
    """In the storage that tensors have, where what was saved fits; else made anew."""
    if type(value) in PLAIN_TYPES:
        return walk.rebuild_at(saved, name)
    if is_of_kind(value, saved, walk.made_at(name), walk) and not walk.check(value, saved, name):
        return walk.restore(value, saved, name)
    made = walk.rebuild_at(saved, name)
    if isinstance(value, torch.Tensor) and isinstance(made, torch.Tensor) and made.device != value.device:
        return walk.stands(made.to(value.device), name)
    return made


def _is_container(value: Any, saved: Tree) -> bool:
    """Whether the value holds parts that must stay among others, so that each is an attribute of its own kind."""
    return type(value) in _CONTAINERS and not isinstance(saved, Alias)


def _check_parts(value: Any, saved: Tree, walk: Walk) -> list[Finding]:
    """The same kind of container with as many parts under the same names; each part as an attribute."""
    kind = type(value)
    if not is_of_kind(value, saved, walk.made_here, walk):
        return [walk.finding(walk.made_here or summary(saved), kind.__name__, "Build it as the run did.")]
    if kind is deque and saved[MAXLEN] != value.maxlen:
        return [walk.finding(f"maxlen {saved[MAXLEN]}", f"maxlen {value.maxlen}", "Use the run's maxlen.")]
    if kind in _SHELLS:
        return check_slot(_inside(value, walk), saved[ITEMS], ITEMS, walk)
    parts, wanted = dict(children(value)), dict(children(saved))
    if parts.keys() != wanted.keys():
        return [walk.finding(summary(saved), f"{kind.__name__} of {len(parts)}", GROWING)]
    return [found for step, child in wanted.items() for found in check_slot(parts[step], child, step, walk)]


def _restore_parts(value: Any, saved: Tree, walk: Walk) -> Any:
    """The container with the restored parts, in the saved order; the same one if each of them was restored in place."""
    if type(value) in _SHELLS:
        before = _inside(value, walk)
        items = restore_slot(before, saved[ITEMS], ITEMS, walk)
        restored = value if items is before else _SHELLS[type(value)](value, items)
    else:
        parts = dict(children(value))
        made = {step: restore_slot(parts[step], child, step, walk) for step, child in children(saved)}
        is_same = list(made) == list(parts) and all(made[step] is parts[step] for step in parts)
        restored = value if is_same else type(value)(made if isinstance(value, dict) else made.values())
    walk.know(restored)
    return restored


def _inside(value: Any, walk: Walk) -> Any:
    return list(value) if type(value) is deque else contents(value, walk)
