"""PPO's loss and its gradient, written down instead of derived: the graph behind the networks' outputs is most of the
time that a small network takes, and its derivatives are one line each."""

from dataclasses import dataclass

import torch
from torch import Tensor

from perdure.torch.config import PPOConfig


@dataclass(frozen=True)
class Judged:
    """What the networks say of a minibatch, shape (batch,) each, with their graph."""

    log_probs: Tensor
    """Of the actions that were taken."""
    entropies: Tensor
    """Of the policy."""
    values: Tensor
    """Of the critic."""


@dataclass(frozen=True)
class Taught:
    """What a minibatch has to teach, shape (batch,) each."""

    log_probs: Tensor
    """Of the actions, when they were taken."""
    values: Tensor
    """The critic's estimates then."""
    advantages: Tensor
    """Not normalised."""
    returns: Tensor
    """What the critic should have said."""


@dataclass(frozen=True)
class Loss:
    """A loss, its parts, and its derivatives by each output of the networks."""

    parts: Tensor
    """The means of: policy loss, squared error of the critic, entropy, approximate KL divergence, share of ratios
    that were clipped; shape (5,)."""
    total: Tensor
    """policy loss + value_weight * squared error - entropy_weight * entropy."""
    gradients: tuple[Tensor, Tensor, Tensor]
    """By log-probabilities, entropies and values, shape (batch,) each."""


@torch.no_grad()
def ppo_loss(judged: Judged, taught: Taught, config: PPOConfig) -> Loss:
    """The clipped surrogate objective (arXiv:1707.06347, equation 9); KL divergence: mean(ratio - 1 - log ratio).

    The critic's error may be clipped as OpenAI's baselines do: the greater of the errors of its estimate and of the
    estimate that is held near the old one.
    """
    count, advantages = len(judged.log_probs), taught.advantages
    if config.normalize_advantages and count > 1:
        deviation, mean = torch.std_mean(advantages)
        advantages = (advantages - mean) / (deviation + 1e-8)
    log_ratio = judged.log_probs - taught.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
    gain, held_gain = advantages * ratio, advantages * clipped
    error = judged.values - taught.returns
    squared, is_free = error.square(), None
    if config.clip_range_value is not None:
        moved = (judged.values - taught.values).clamp(-config.clip_range_value, config.clip_range_value)
        held = (taught.values + moved - taught.returns).square()
        squared, is_free = torch.maximum(squared, held), squared >= held
    parts = torch.stack(
        [
            -torch.minimum(gain, held_gain).mean(),
            squared.mean(),
            judged.entropies.mean(),
            (ratio - 1 - log_ratio).mean(),
            (ratio != clipped).float().mean(),
        ]
    )
    by_values = error * (2 * config.value_weight / count)
    gradients = (
        # The ratio's derivative by the log-probability is the ratio. Where the clipped gain is the smaller one it is flat.
        (gain * (gain <= held_gain)) / -count,
        torch.full_like(judged.entropies, -config.entropy_weight / count),
        by_values if is_free is None else by_values * is_free,
    )
    total = parts[0] + config.value_weight * parts[1] - config.entropy_weight * parts[2]
    return Loss(parts, total, gradients)
