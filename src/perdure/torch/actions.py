"""What actions are made of: from a network's outputs to actions, their log-probabilities and the policy's entropy."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import gymnasium
import numpy as np
import torch
from torch import Tensor

from perdure import UsageError

FORBIDDEN = -1e8
"""Logit of an action that a mask forbids: its probability is zero, and its share of the entropy is no NaN."""

Numbers = TypeVar("Numbers", Tensor, np.ndarray)

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


class Actions(Protocol):
    """One kind of action space, for a batch of environments.

    All methods are pure. `outputs` are the policy's, float32, shape (…, `n_outputs`); `mask` is bool, shape
    (…, `n_outputs`), or None.
    """

    @property
    def n_outputs(self) -> int:
        """Numbers that the policy gives for each environment."""
        ...

    @property
    def has_scale(self) -> bool:
        """Whether the policy has a learned `log_std`, shape (`n_outputs`,)."""
        ...

    def noise(self, rng: np.random.Generator, *batch: int) -> np.ndarray:
        """All randomness of a rollout at once: float32, shape (`*batch`, `n_outputs`)."""
        ...

    def sample(self, outputs: Tensor, noise: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Tensor:
        """Actions drawn from the policy, one number or row each; the noise decides which."""
        ...

    def best(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The most likely actions."""
        ...

    def judge(
        self, outputs: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of actions and entropies of the policy, shape (…) each."""
        ...

    def draw(
        self, outputs: np.ndarray, noise: np.ndarray, mask: np.ndarray | None, log_std: np.ndarray | None
    ) -> np.ndarray:
        """What `sample` does, of arrays: PyTorch takes ten times as long for as few numbers as a step has."""
        ...

    def derive(
        self,
        outputs: Tensor,
        actions: Tensor,
        mask: Tensor | None,
        log_std: Tensor | None,
        by_log_probs: Tensor,
        by_entropies: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Derivatives of a loss by `outputs` and by `log_std`, if there is one.

        Given are those by what `judge` says of the same arguments. No graph is looked at or made.
        """
        ...

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions as the environments take them."""
        ...


@dataclass(frozen=True)
class Choices:
    """`Discrete` and `MultiDiscrete`: one choice among some, or several independent ones side by side."""

    sizes: tuple[int, ...]
    """How many each is among."""
    start: np.ndarray | None
    """What the first of each is called; None: 0."""
    is_single: bool
    """Whether an action is one number, and no vector of them."""
    has_scale: bool = False
    """Never."""

    @property
    def n_outputs(self) -> int:
        """A logit for each possibility."""
        return sum(self.sizes)

    def noise(self, rng: np.random.Generator, *batch: int) -> np.ndarray:
        """Gumbel noise: the greatest of logits and noise is a draw from the softmax (arXiv:1611.00712)."""
        waits = rng.standard_exponential((*batch, self.n_outputs), dtype=np.float32)
        return -np.log(np.maximum(waits, 1e-30, out=waits), out=waits)  # finite, so that masks have the last word

    def sample(self, outputs: Tensor, noise: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Tensor:
        """The greatest of logits and noise, of each choice."""
        return self.best(outputs + noise, mask)

    def best(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The greatest logit of each choice."""
        logits = outputs if mask is None else outputs.masked_fill(~mask, FORBIDDEN)
        if self.is_single:
            return logits.argmax(-1)
        return torch.stack([part.argmax(-1) for part in logits.split(self.sizes, -1)], -1)

    def judge(
        self, outputs: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Sums over the choices, which are independent."""
        logits = outputs if mask is None else outputs.masked_fill(~mask, FORBIDDEN)
        if self.is_single:
            return _judge_choice(logits, actions.unsqueeze(-1))
        parts = zip(logits.split(self.sizes, -1), actions.split(1, -1), strict=True)
        log_probs, entropies = zip(*(_judge_choice(part, action) for part, action in parts), strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def draw(
        self, outputs: np.ndarray, noise: np.ndarray, mask: np.ndarray | None, log_std: np.ndarray | None
    ) -> np.ndarray:
        """The greatest of logits and noise, of each choice."""
        logits = outputs + noise if mask is None else np.where(mask, outputs + noise, np.float32(FORBIDDEN))
        if self.is_single:
            return logits.argmax(-1)
        return np.stack([part.argmax(-1) for part in np.split(logits, np.cumsum(self.sizes)[:-1], -1)], -1)

    def derive(
        self,
        outputs: Tensor,
        actions: Tensor,
        mask: Tensor | None,
        log_std: Tensor | None,
        by_log_probs: Tensor,
        by_entropies: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Through the softmax of each choice."""
        logits = outputs if mask is None else outputs.masked_fill(~mask, FORBIDDEN)
        chosen = actions.unsqueeze(-1) if self.is_single else actions
        parts = zip(logits.split(self.sizes, -1), chosen.split(1, -1), strict=True)
        derived = [_derive_choice(part, action, by_log_probs, by_entropies) for part, action in parts]
        by_outputs = derived[0] if self.is_single else torch.cat(derived, -1)
        return (by_outputs if mask is None else by_outputs.masked_fill_(~mask, 0)), None

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Counted from where the space starts."""
        return actions if self.start is None else actions + self.start


def _judge_choice(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    log_probs = torch.log_softmax(logits, -1)
    return log_probs.gather(-1, action).squeeze(-1), -(log_probs.exp() * log_probs).sum(-1)


def _derive_choice(logits: Tensor, action: Tensor, by_log_probs: Tensor, by_entropies: Tensor) -> Tensor:
    """By a logit, the log-probability grows by (is it the action) - p, and the entropy by -p * (log p + entropy)."""
    log_probs = torch.log_softmax(logits, -1)
    probs = log_probs.exp()
    mean = (probs * log_probs).sum(-1, keepdim=True)
    by_log_probs = by_log_probs.unsqueeze(-1)
    factors = (log_probs - mean).mul_(by_entropies.unsqueeze(-1)).add_(by_log_probs)
    return probs.mul_(factors).neg_().scatter_add_(-1, action, by_log_probs)


@dataclass(frozen=True)
class Continuous:
    """`Box`: independent normal distributions, cut off at the bounds only on the way to the environment."""

    low: np.ndarray
    """Least action, float32."""
    high: np.ndarray
    """Greatest action."""
    has_scale: bool = True
    """The standard deviation is learned, and the same everywhere."""

    @property
    def n_outputs(self) -> int:
        """A mean for each number of an action."""
        return int(self.low.size)

    def noise(self, rng: np.random.Generator, *batch: int) -> np.ndarray:
        """Standard normal."""
        return rng.standard_normal((*batch, self.n_outputs), dtype=np.float32)

    def sample(self, outputs: Tensor, noise: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Tensor:
        """Mean and noise, not cut off: that is what log-probabilities are about."""
        return outputs + noise * _scale(log_std).exp()

    def best(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The mean."""
        return outputs

    def judge(
        self, outputs: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of a normal distribution with diagonal covariance."""
        scale = _scale(log_std)
        distances = (actions - outputs) * torch.exp(-scale)
        log_probs = -(0.5 * distances.square() + scale + _HALF_LOG_2_PI).sum(-1)
        return log_probs, (scale + (0.5 + _HALF_LOG_2_PI)).sum().expand(log_probs.shape)

    def draw(
        self, outputs: np.ndarray, noise: np.ndarray, mask: np.ndarray | None, log_std: np.ndarray | None
    ) -> np.ndarray:
        """Mean and noise."""
        return outputs + noise * np.exp(_scale(log_std))

    def derive(
        self,
        outputs: Tensor,
        actions: Tensor,
        mask: Tensor | None,
        log_std: Tensor | None,
        by_log_probs: Tensor,
        by_entropies: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """By the mean and the logarithm of the standard deviation; the entropy grows as the latter."""
        inverse = torch.exp(-_scale(log_std))
        distances = (actions - outputs) * inverse
        by_outputs = distances * inverse * by_log_probs.unsqueeze(-1)
        by_scale = (distances.square() - 1).mul_(by_log_probs.unsqueeze(-1)).sum(0) + by_entropies.sum()
        return by_outputs, by_scale

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Cut off at the bounds, in the space's shape."""
        return np.clip(actions.reshape(-1, *self.low.shape), self.low, self.high)


def _scale(log_std: Numbers | None) -> Numbers:
    if log_std is None:
        raise TypeError("continuous actions have a log_std.")
    return log_std


def _start(space: gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete) -> np.ndarray | None:
    return np.array(space.start) if np.any(space.start) else None


def actions_of(space: gymnasium.Space[Any]) -> Actions:
    """What to make of a single environment's action space.

    Raises:
        UsageError: there is no distribution for such a space.
    """
    match space:
        case gymnasium.spaces.Discrete():
            return Choices((int(space.n),), _start(space), is_single=True)
        case gymnasium.spaces.MultiDiscrete() if space.nvec.ndim == 1:
            return Choices(tuple(map(int, space.nvec)), _start(space), is_single=False)
        case gymnasium.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return Continuous(space.low.astype(np.float32), space.high.astype(np.float32))
    raise UsageError(
        f"action space {space}: the policy acts in Discrete, in MultiDiscrete of one dimension, and in Box of floats. "
        "Wrap the environment (gymnasium.wrappers.TransformAction) so that it takes one of them."
    )
