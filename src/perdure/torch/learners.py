"""Learners: what a minibatch is asked, and how the networks are changed by the answer.

Both do the same by other means. Autograd takes any networks. Dense towers on the processor are derived by hand, which
takes a third of the time: matrices of 64 × 64 are multiplied in less time than PyTorch needs to note and replay it.
"""

from types import TracebackType
from typing import Protocol, Self

from torch import Tensor

from perdure.torch.by_hand import ByHand, is_plain
from perdure.torch.gradients import FlatGradients
from perdure.torch.loss import Gradients
from perdure.torch.minibatches import Minibatch
from perdure.torch.state import Task, TrainingState
from perdure.torch.stock import is_stock_adam

Said = tuple[Tensor, Tensor, Tensor]
"""Log-probabilities of the actions, entropies of the policy and values, shape (batch,) each."""


class Learner(Protocol):
    """Changes the networks of a training while it is entered, and its optimizer's state with them."""

    def __enter__(self) -> Self:
        """Takes the networks as they are."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves networks and optimizer as the last `step` made them, also if something was raised since."""
        ...

    def say(self, minibatch: Minibatch) -> Said:
        """What the networks say now; steps that ignored their action are left out."""
        ...

    def derive(self, derivatives: Gradients) -> float:
        """The gradient of a loss, of which the derivatives by what was said last are given, clipped; its norm before.

        The norm is NaN or infinite if the gradient is; nothing is clipped then.
        """
        ...

    def step(self) -> None:
        """Adam's step along the gradient."""
        ...


def learner_of(task: Task, state: TrainingState) -> Learner:
    """The fastest learner that takes these networks.

    Adam lays out its state in its first step, so the first update of all is autograd's; so are all of networks or an
    optimizer that are not stock ones.
    """
    if is_plain(state.networks, task.config.device) and is_stock_adam(state.optimizer, state.networks):
        return ByHand(task, state)
    return ByAutograd(task, state)


class ByAutograd:
    """Any networks, on any device."""

    def __init__(self, task: Task, state: TrainingState) -> None:
        """Of a training."""
        self._task, self._networks, self._optimizer = task, state.networks, state.optimizer
        self._gradients, self._said = FlatGradients(state.networks.parameters()), ()

    def __enter__(self) -> Self:
        """Puts gradients in place."""
        self._gradients.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes them away."""
        self._gradients.__exit__(kind, error, trace)

    def say(self, minibatch: Minibatch) -> Said:
        """Looks, remembers, judges; a graph is made of it."""
        networks = self._networks
        if minibatch.memory is None:
            features = networks.encode(minibatch.observations)
        else:
            encoded = networks.encode(minibatch.observations.flatten(0, 1)).unflatten(0, minibatch.starts.shape)
            features = networks.recall(encoded, minibatch.memory, minibatch.starts).flatten(0, 1)
            features = features if minibatch.counts is None else features[minibatch.counts]
        outputs, values = networks.policy(features), networks.value(features).squeeze(-1)
        judged = self._task.actions.judge(outputs, minibatch.actions, minibatch.masks, networks.log_std)
        self._said = *judged, values
        return self._said

    def derive(self, derivatives: Gradients) -> float:
        """Goes back through the graph."""
        self._gradients.derive(self._said, derivatives)
        return self._gradients.clip(self._task.config.max_grad_norm)

    def step(self) -> None:
        """The optimizer's own."""
        self._optimizer.step()
