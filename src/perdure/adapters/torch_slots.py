"""One attribute of an object of PyTorch: what may come back into it, whatever it holds now."""

from collections import deque
from typing import Any

import numpy as np
import torch

from perdure.adapters.numpy_random import bit_generator_of, new_generator
from perdure.adapters.torch_dtypes import numpy_dtype
from perdure.adapters.torch_tensors import rebuild
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Array, Tree


def check_slot(value: Any, saved: Tree, name: str, walk: Walk) -> list[Finding]:
    """Why `saved` cannot become the attribute `name`, which holds `value` now, or None if it is not there."""
    if _is_free(value, saved, name, walk) or (saved is None and isinstance(value, np.random.Generator)):
        return []
    if value is None and bit_generator_of(saved) is not None:
        return []
    if _makes_way(value, saved, name, walk):
        return []
    if value is None:
        advice = "Build it as the run did: only plain data and generators can come back where there is nothing yet."
        return [walk.finding(summary(saved), "nothing", advice, name)]
    return walk.check(value, saved, name)


def restore_slot(value: Any, saved: Tree, name: str, walk: Walk) -> Any:
    """What the attribute `name` holds after the restore."""
    if _is_free(value, saved, name, walk):
        return walk.rebuild_at(saved, name)
    if saved is None and isinstance(value, np.random.Generator):
        return None
    if _makes_way(value, saved, name, walk):
        return None if saved is None else rebuild(saved, walk).to(value.device)
    if value is None and bit_generator_of(saved) is not None:
        value = new_generator(saved)
    return walk.restore(value, saved, name)


def _is_free(value: Any, saved: Tree, name: str, walk: Walk) -> bool:
    """Whether plain data takes the place of plain data, of whatever shape: episodes begin with None, queues grow."""
    return _is_plain(value) and walk.is_plain(saved, name)


def _makes_way(value: Any, saved: Tree, name: str, walk: Walk) -> bool:
    """Whether a tensor is replaced by None, or by one of another shape: a recurrent state follows its batch.

    The shape that a fresh start has is a setting, so that a change of the script is found all the same.
    """
    if not isinstance(value, torch.Tensor) or value.requires_grad:
        return False
    if saved is None:
        return True
    is_tensor = isinstance(saved, Array) and walk.made_at(name) == "torch-tensor"
    return is_tensor and numpy_dtype(value.dtype) == saved.value.dtype and tuple(value.shape) != saved.value.shape


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, deque):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return type(value) in PLAIN_TYPES or type(value) is np.ndarray or isinstance(value, np.generic)
