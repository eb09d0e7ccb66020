"""PPO's loss and its derivatives by what the networks say, one line each: PyTorch takes longer to derive them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from perdure.torch.config import PPOConfig


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
class Told:
    """What a minibatch tells, shape (batch,) each but for the last."""

    log_ratios: Tensor
    """Of the likelihoods of the actions, now and then."""
    advantages: Tensor
    """As they were used."""
    squared_errors: Tensor
    """Of the critic."""
    entropies: Tensor
    """Of the policy."""

    def parts(self, config: PPOConfig) -> dict[str, float]:
        """Means: policy loss, the critic's squared error, entropy, KL divergence, share of ratios that were clipped."""
        ratios = self.log_ratios.exp()
        clipped = ratios.clamp(1 - config.clip_range, 1 + config.clip_range)
        return {
            "loss/policy": -float(torch.minimum(self.advantages * ratios, self.advantages * clipped).mean()),
            "loss/value": float(self.squared_errors.mean()),
            "loss/entropy": float(self.entropies.mean()),
            "loss/approx_kl": float(self.divergence()),
            "loss/clip_fraction": float((ratios != clipped).float().mean()),
        }

    def divergence(self) -> Tensor:
        """An estimate of the KL divergence that cannot be negative: mean(ratio - 1 - log ratio)."""
        return (self.log_ratios.expm1() - self.log_ratios).mean()

    @classmethod
    def joined(cls, told: Sequence["Told"]) -> "Told":
        """Of several minibatches."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(torch.cat([getattr(one, name) for one in told]) for name in names))


Gradients = tuple[Tensor, Tensor, Tensor]
"""The loss's derivatives by log-probabilities, entropies and values, shape (batch,) each."""


@torch.no_grad()
def ppo_loss(
    log_probs: Tensor, entropies: Tensor, values: Tensor, taught: Taught, config: PPOConfig
) -> tuple[Told, Gradients]:
    """The clipped surrogate objective (arXiv:1707.06347, equation 9), to be minimised; no graph is looked at or made.

    It is mean(-min(advantage * ratio, advantage * clipped ratio) + value_weight * error² - entropy_weight * entropy).
    The critic's error may be clipped as OpenAI's baselines do: the greater of the errors of its estimate and of the
    estimate that is held near the old one.

    Args:
        log_probs: Of the actions that were taken, shape (batch,).
        entropies: Of the policy, likewise.
        values: Of the critic, likewise.
        taught: What they are to learn from.
        config: The options.
    """
    count, advantages = len(log_probs), taught.advantages
    if config.normalize_advantages and count > 1:
        deviation, mean = torch.std_mean(advantages)
        advantages = (advantages - mean) / (deviation + 1e-8)
    log_ratios = log_probs - taught.log_probs
    ratios = log_ratios.exp()
    gains = advantages * ratios
    # The derivative of a ratio by its log-probability is the ratio; where the clipped gain is the smaller, it is 0.
    is_free = gains <= advantages * ratios.clamp(1 - config.clip_range, 1 + config.clip_range)
    by_log_probs = (gains * is_free).div_(-count)
    errors = values - taught.returns
    squared, by_values = errors.square(), errors * (2 * config.value_weight / count)
    if config.clip_range_value is not None:
        moved = (values - taught.values).clamp(-config.clip_range_value, config.clip_range_value)
        held = (taught.values + moved - taught.returns).square()
        by_values, squared = by_values * (squared >= held), torch.maximum(squared, held)
    told = Told(log_ratios, advantages, squared, entropies.detach())
    return told, (by_log_probs, torch.full_like(entropies, -config.entropy_weight / count), by_values)
