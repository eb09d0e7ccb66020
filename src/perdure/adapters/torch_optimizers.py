"""PyTorch's optimizers: what they hold for each parameter, whose it is, and their hyper-parameters."""

from collections.abc import Iterator
from typing import Any

import torch

from perdure.adapters.containers import Children
from perdure.adapters.torch_attributes import ByAttributes
from perdure.adapters.torch_optimizer_state import (
    GRADIENTS,
    STATE,
    capture_state,
    give_gradients,
    restore_state,
    state_by_index,
    with_gradient,
)
from perdure.adapters.torch_tensors import capture_tensor
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree

PARAMETERS = "parameters"
GROUPS = "groups"

_BOOKKEEPING = frozenset(vars(torch.optim.SGD([torch.zeros(1)], lr=0.0))) | {
    "step",  # which a scheduler wraps to see whether it was called
    "_opt_called",
    "_params",  # the parameters once more, in LBFGS
    "_numel_cache",
    "_step_supports_amp_scaling",
    "_need_device_dtype_check_for_fused",
    "profile_hook_step",
}
"""Attributes of optimizers that are captured in a better form, or follow from others."""


class Optimizer(ByAttributes):
    """`torch.optim.Optimizer`: state by the index of the parameter, and which parameter that is.

    Parameters of modules that were captured before stand here as aliases, so that another order is found although
    the shapes agree. Those that no module holds (SAC's log_alpha) are captured here.
    """

    id = "torch-optimizer"
    walks_after = 1

    def attributes(self, obj: Any) -> Children:
        """What a user's class holds beside."""
        return {name: value for name, value in sorted(vars(obj).items()) if name not in _BOOKKEEPING}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Parameters, groups with their hyper-parameters, and the state of each parameter.

        Raises:
            CaptureError: state that no checkpoint could give back to the right parameter, or that was lost.
        """
        parameters = parameters_of(obj)
        state = state_by_index(obj, parameters, walk)
        return {
            PARAMETERS: [capture_tensor(each, walk, PARAMETERS, at) for at, each in enumerate(parameters)],
            GROUPS: walk.capture(_groups(obj), GROUPS),
            STATE: capture_state(state, walk),
            GRADIENTS: with_gradient(parameters),
            **super().capture(obj, walk),
        }

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same parameters in the same order, groups with the same hyper-parameters."""
        if not isinstance(tree, dict) or not tree.keys() >= _PARTS:
            return [walk.finding(summary(tree), name_of(type(obj)), "Build it as the run did.")]
        grouping = list(_check_groups(_groups(obj), tree[GROUPS], walk))
        if grouping:
            return grouping
        return [
            *walk.check(_groups(obj), tree[GROUPS], GROUPS),
            *walk.check(parameters_of(obj), tree[PARAMETERS], PARAMETERS),
            *super().check(obj, _own(tree), walk),
        ]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Writes into the tensors that the optimizer has; makes those that it has not made yet."""
        walk.restore(parameters_of(obj), tree[PARAMETERS], PARAMETERS)
        for group, restored in zip(obj.param_groups, walk.restore(_groups(obj), tree[GROUPS], GROUPS), strict=True):
            group.update({name: value for name, value in restored.items() if name != PARAMETERS})
        restore_state(obj, walk.rebuild_at(tree[STATE], STATE))
        give_gradients(parameters_of(obj), walk.rebuild_at(tree[GRADIENTS], GRADIENTS))
        return super().restore(obj, _own(tree), walk)


_PARTS = frozenset({PARAMETERS, GROUPS, STATE, GRADIENTS})


def _own(tree: dict[Any, Tree]) -> dict[Any, Tree]:
    return {name: part for name, part in tree.items() if name not in _PARTS}


def parameters_of(obj: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All parameters by their index."""
    return [parameter for group in obj.param_groups for parameter in group["params"]]


def _groups(obj: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The groups' hyper-parameters, and how many parameters each has."""
    return [
        {PARAMETERS: len(group["params"]), **{name: value for name, value in group.items() if name != "params"}}
        for group in obj.param_groups
    ]


def _check_groups(groups: list[dict[str, Any]], tree: Tree, walk: Walk) -> Iterator[Finding]:
    """Plain lists and dicts may differ in length; groups may not."""
    if not isinstance(tree, list) or len(tree) != len(groups):
        advice = "Give the optimizer the parameter groups that the run gave it."
        yield walk.finding(f"{len(tree)} groups", f"{len(groups)} groups", advice, GROUPS)
        return
    for at, (group, saved) in enumerate(zip(groups, tree, strict=True)):
        for name in [*saved, *(name for name in group if name not in saved)]:
            if name not in group or name not in saved:
                texts = [summary(side[name]) if name in side else "missing" for side in (saved, group)]
                yield walk.finding(
                    *texts, "Build it with the same options and schedulers as the run did.", GROUPS, at, name
                )
        if saved.get(PARAMETERS) != group[PARAMETERS]:
            texts = [f"{side.get(PARAMETERS)} parameters" for side in (saved, group)]
            yield walk.finding(*texts, "Give the group the parameters that the run gave it.", GROUPS, at, PARAMETERS)
