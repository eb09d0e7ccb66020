"""What an optimizer holds for each of its parameters: by index, complete, and back in the same tensors."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from perdure.adapters.torch_dtypes import array_of, tensor_from
from perdure.adapters.torch_tensors import copy_into, has_place_for, is_dense
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.tree.leaves import PLAIN_TYPES, Alias, Tree, leaves
from perdure.tree.paths import format_path

STATE = "state"
GRADIENTS = "gradients"

_UNEVEN = frozenset({"Adafactor", "LBFGS"})
"""Kinds that keep other things for one parameter than for another."""

_MAYBE_WITHOUT = frozenset({"SGD"})
"""Kinds that may keep nothing at all."""

State = dict[int | str, Mapping[str, Any]]


def state_by_index(obj: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], walk: Walk) -> State:
    """The state of each parameter that has some, by the parameter's index; what is kept under a name, by the name.

    Raises:
        CaptureError: state of a tensor that is none of its parameters, incomplete state, or none although it stepped.
    """
    index = {id(parameter): at for at, parameter in enumerate(parameters)}
    found: State = {}
    for key, entry in obj.state.items():
        at = key if isinstance(key, str) else index.get(id(key))
        if at is None:
            problem = "it holds state for a tensor that is none of its parameters: it was made for other tensors"
            raise CaptureError(f"{format_path(walk.path)}: {problem}. Make the optimizer after the module is complete.")
        if not isinstance(entry, Mapping) or entry:  # reading `state[parameter]` leaves an empty entry behind
            found[at] = entry
    _refuse_lost(obj, found, walk)
    return dict(sorted(found.items(), key=lambda item: (isinstance(item[0], str), item[0])))


def _refuse_lost(obj: torch.optim.Optimizer, state: State, walk: Walk) -> None:
    kind = type(obj).__name__
    known = type(obj).__module__.startswith("torch.optim.")
    if known and kind not in _MAYBE_WITHOUT and not state and getattr(obj, "_opt_called", False):
        problem = f"the {kind} has stepped, but holds no state for any parameter: it was lost"
        raise CaptureError(f"{format_path(walk.path)}: {problem}. Do not clear optimizer.state.")
    first = 0
    for group in obj.param_groups if known and kind not in _UNEVEN else ():
        last = first + len(group["params"])
        names = {at: entry.keys() for at, entry in state.items() if isinstance(at, int) and first <= at < last}
        union = set().union(*names.values())
        for at, present in names.items():
            if missing := sorted(union - present):
                place = format_path((*walk.path, STATE, at))
                problem = (
                    f"the {kind} holds {', '.join(missing)} for other parameters of this group, and not for this one"
                )
                raise CaptureError(f"{place}: {problem}: it was lost.")
        first = last


def capture_state(state: State, walk: Walk) -> Tree:
    """The trees; plain tensors, of which there are two or three a parameter, take the short way.

    Raises:
        CaptureError: one tensor stands at two places.
    """
    if all(map(_is_flat, state.values())):
        held = [id(value) for entry in state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
        if len(held) == len(set(held)):
            return {at: {name: _tree_of(value) for name, value in entry.items()} for at, entry in state.items()}
    tree = walk.capture(
        {at: dict(entry) if isinstance(entry, Mapping) else entry for at, entry in state.items()}, STATE
    )
    for path, leaf in leaves(tree, (*walk.path, STATE)):
        if isinstance(leaf, Alias):
            problem = "the same object as elsewhere in the run, which an optimizer's own state cannot be"
            raise CaptureError(f"{format_path(path)}: {problem}. Give the optimizer a copy.")
    return tree


def _is_flat(entry: Any) -> bool:
    return isinstance(entry, Mapping) and all(type(value) in PLAIN_TYPES or is_dense(value) for value in entry.values())


def _tree_of(value: Any) -> Tree:
    return array_of(value) if isinstance(value, torch.Tensor) else value


def restore_state(obj: torch.optim.Optimizer, saved: Mapping[int | str, Any]) -> None:
    """Gives each parameter the saved state, in the tensors that are there already where they fit.

    Args:
        obj: the optimizer.
        saved: by index: plain values, and arrays or tensors on the host.
    """
    owners = [(parameter, group) for group in obj.param_groups for parameter in group["params"]]
    state = cast(dict[Any, Any], obj.state)  # of a user's optimizer, also by names
    before = {id(key): entry for key, entry in state.items()}
    state.clear()
    for at, entry in saved.items():
        if isinstance(at, str) or not isinstance(entry, Mapping):
            state[at] = entry
            continue
        parameter, group = owners[at]
        old = before.get(id(parameter), {})
        state[parameter] = {
            name: _placed(value, old.get(name), _device_of(name, parameter, group)) for name, value in entry.items()
        }


def with_gradient(parameters: Sequence[torch.Tensor]) -> list[int]:
    """The parameters, by index, that have a gradient.

    Its numbers are used up at a boundary. But after `zero_grad(set_to_none=False)` one that the next loss does not
    reach has a gradient of zeros, with which moments move it on; without any, optimizers leave it alone.
    """
    return [at for at, each in enumerate(parameters) if each.grad is not None and each.grad.layout == torch.strided]


def give_gradients(parameters: Sequence[torch.Tensor], indices: Sequence[int]) -> None:
    """Gives a gradient of zeros to those parameters, and none to the others."""
    wanted = frozenset(indices)
    for at, parameter in enumerate(parameters):
        parameter.grad = torch.zeros_like(parameter) if at in wanted else None


def _device_of(name: str, parameter: torch.Tensor, group: Mapping[str, Any]) -> torch.device:
    """Where torch.optim keeps it: with the parameter, but step counts on the host unless a kernel reads them."""
    on_host = name == "step" and not group.get("capturable") and not group.get("fused")
    return torch.device("cpu") if on_host else parameter.device


def _placed(value: Any, old: Any, device: torch.device) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_placed(part, None, device) for part in value)
    if isinstance(value, dict):
        return {name: _placed(part, None, device) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = tensor_from(value)
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(old, torch.Tensor) and has_place_for(array_of(value).value, old):
        return copy_into(old, array_of(value).value)
    return value.to(device)
