"""Learning with dense towers by hand: their gradients as matrix products, Adam on one tensor of all parameters.

What autograd and `torch.optim.Adam` spend on an MLP of this size is bookkeeping: nodes of a graph, lists of parameters
and their step counts. Here a minibatch is some thirty operations whose order is known. The numbers are those of the
other learner but for rounding, which tests compare.
"""

from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from perdure.torch.gradients import clip_norm
from perdure.torch.loss import Gradients
from perdure.torch.minibatches import Minibatch
from perdure.torch.networks import ActorCritic, Dense
from perdure.torch.state import Task, TrainingState
from perdure.torch.stock import is_stock, is_stock_parameter

Part = dict[Tensor, Tensor]
"""A view of a flat tensor for each parameter."""


def is_plain(networks: ActorCritic, device: str) -> bool:
    """Whether the networks are two dense towers on the processor, and nothing else but a scale.

    32-bit floats, stock layers, no hooks: see `stock.py`. Under autocast, PyTorch computes something else.
    """
    towers = networks.policy, networks.value
    if not (is_stock(networks, ActorCritic) and all(isinstance(tower, Dense) for tower in towers)):
        return False
    scale = [] if networks.log_std is None else [networks.log_std]
    own = [*scale, *(part for tower in towers for layer in tower.linear() for part in (layer.weight, layer.bias))]
    return (
        networks.features is None
        and networks.memory is None
        and torch.device(device).type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and all(tower.is_stock() for tower in towers)
        and all(map(is_stock_parameter, scale))
        and len(set(own)) == len(own) == len([*networks.parameters()])  # neither tied nor more than these
    )


class ByHand:
    """A learner (`learners.py`) for networks that are plain, with an Adam that has made a step."""

    def __init__(self, task: Task, state: TrainingState) -> None:
        """Of a training."""
        self._task, self._networks = task, state.networks
        self._flat = _FlatAdam(state.optimizer)
        values, gradients = self._flat.values, self._flat.gradients
        self._policy, self._value = (
            _Tower(part, values, gradients) for part in (state.networks.policy, state.networks.value)
        )
        scale = state.networks.log_std
        self._log_std, self._by_log_std = (None, None) if scale is None else (values[scale], gradients[scale])

    def __enter__(self) -> Self:
        """Everything has been taken when it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hands parameters and moments back."""
        self._flat.hand_back()

    @torch.no_grad()
    def say(self, minibatch: Minibatch) -> tuple[Tensor, Tensor, Tensor]:
        """Both towers, which remember what is needed for the way back."""
        seen = minibatch.observations.flatten(1)
        outputs, values = self._policy.forward(seen), self._value.forward(seen).squeeze(-1)
        self._said = minibatch, outputs
        return *self._task.actions.judge(outputs, minibatch.actions, minibatch.masks, self._log_std), values

    @torch.no_grad()
    def derive(self, derivatives: Gradients) -> float:
        """The way back."""
        minibatch, outputs = self._said
        by_log_probs, by_entropies, by_values = derivatives
        by_outputs, by_log_std = self._task.actions.derive(
            outputs, minibatch.actions, minibatch.masks, self._log_std, by_log_probs, by_entropies
        )
        self._policy.backward(by_outputs)
        self._value.backward(by_values.unsqueeze(-1))
        if self._by_log_std is not None and by_log_std is not None:
            self._by_log_std.copy_(by_log_std)
        return clip_norm(self._flat.gradient, self._task.config.max_grad_norm)

    def step(self) -> None:
        """Adam's."""
        self._flat.step()


class _Tower:
    """Dense layers, and the gradients of their parameters."""

    def __init__(self, dense: Dense, values: Part, gradients: Part) -> None:
        self._layers = [(values[each.weight], values[each.bias]) for each in dense.linear()]
        self._gradients = [(gradients[each.weight], gradients[each.bias]) for each in dense.linear()]
        self._n_active, self._seen = dense.n_active, []

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (batch, …) to outputs (batch, …)."""
        self._seen = [inputs]
        for number, (weight, bias) in enumerate(self._layers):
            inputs = torch.addmm(bias, inputs, weight.t())
            if number < self._n_active:
                # NumPy's is five times as fast as PyTorch's.
                np.tanh(inputs.numpy(), out=inputs.numpy())
            self._seen.append(inputs)
        return inputs

    def backward(self, by_outputs: Tensor) -> None:
        """Writes the gradients of the parameters, of what was computed last."""
        by = by_outputs
        for number in reversed(range(len(self._layers))):
            if number < self._n_active:
                by = torch.ops.aten.tanh_backward(by, self._seen[number + 1])
            by_weight, by_bias = self._gradients[number]
            torch.mm(by.t(), self._seen[number], out=by_weight)
            torch.sum(by, 0, out=by_bias)
            if number:
                by = torch.mm(by, self._layers[number][0])


class _FlatAdam:
    """The parameters of a `torch.optim.Adam` and its state, in one tensor each for as long as an update lasts.

    One tensor is one operation, where the optimizer has one for each parameter, and one count of steps.
    """

    def __init__(self, optimizer: torch.optim.Adam) -> None:
        (self._group,) = optimizer.param_groups
        self._parameters: list[nn.Parameter] = self._group["params"]
        self._states = [optimizer.state[parameter] for parameter in self._parameters]
        self._value = torch.cat([parameter.detach().flatten() for parameter in self._parameters])
        self._moments = [torch.cat([state[name].flatten() for state in self._states]) for name in _MOMENTS]
        self._steps = self._states[0]["step"].clone()
        self.gradient = torch.zeros_like(self._value)
        """Of all parameters."""
        self.values = self._views(self._value)
        """By parameter."""
        self.gradients = self._views(self.gradient)
        """By parameter, to be filled."""

    def _views(self, flat: Tensor) -> Part:
        parts = flat.split([parameter.numel() for parameter in self._parameters])
        return {each: part.view_as(each) for each, part in zip(self._parameters, parts, strict=True)}

    @torch.no_grad()
    def step(self) -> None:
        """Adam's, with the options of the optimizer."""
        first, second = self._group["betas"]
        mean, square = self._moments
        adam(
            [self._value],
            [self.gradient],
            [mean],
            [square],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=first,
            beta2=second,
            lr=self._group["lr"],
            weight_decay=self._group["weight_decay"],
            eps=self._group["eps"],
        )

    @torch.no_grad()
    def hand_back(self) -> None:
        """Into the tensors that the networks and the optimizer hold."""
        for kept, value in zip([each.detach() for each in self._parameters], [*self.values.values()], strict=True):
            kept.copy_(value)
        for name, moment in zip(_MOMENTS, self._moments, strict=True):
            for kept, value in zip(
                [state[name] for state in self._states], [*self._views(moment).values()], strict=True
            ):
                kept.copy_(value)
        for state in self._states:
            state["step"].copy_(self._steps)


_MOMENTS = ("exp_avg", "exp_avg_sq")
