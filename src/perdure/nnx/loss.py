"""PPO's loss for one minibatch of rollouts."""

import operator
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.config import PPOConfig
from perdure.nnx.devices import Devices, mean_and_deviation
from perdure.nnx.gae import gae
from perdure.nnx.metrics import LoggingLevel
from perdure.nnx.networks.types import PPONetworkOutput, StatefulModule
from perdure.nnx.rollout import Transition, bootstrapped
from perdure.nnx.trees import same_structure, total

LossMetrics = dict[str, Any]
"""Arrays of any shape, or pytrees of them, by name."""


def ppo_loss(
    networks: StatefulModule,
    network_states: Any,
    rollout: Transition,
    config: PPOConfig,
    devices: Devices = Devices(),  # noqa: B008 - a frozen value
) -> tuple[jax.Array, LossMetrics]:
    """The clipped surrogate, the critic's squared error and the networks' own regularisation.

    Advantages are estimated anew from the current critic. Traceable and differentiable in the parameters.

    Args:
        networks: The networks to train.
        network_states: Their carries at the start of the rollout, leading axis `B`.
        rollout: What was experienced, leading axes `[T, B]`.
        config: `clip_range`, `critic_loss_weight`, `logging_level`, and what concerns advantages.
        devices: Over which advantages are normalised.

    Returns:
        The loss, a scalar, and what `logging_level` asks for: parts of the loss have one scalar a reward or agent.

    Raises:
        ValueError: If log-likelihoods and advantages cannot be paired.
    """
    replayed = networks.replay(network_states, rollout.obs, rollout.rollout_extras, rollout.done)
    output: PPONetworkOutput = replayed.output
    advantages = jax.tree.map(
        lambda reward, value, bootstrap: gae(
            reward, value, rollout.done, bootstrap, config.gae_lambda, config.discounting_factor
        ),
        rollout.rewards,
        jax.lax.stop_gradient(output.value_estimates),
        jax.lax.stop_gradient(bootstrapped(networks, replayed.next_state, rollout)),
    )
    surrogates, policy_change = _actor_losses(
        output.loglikelihoods, rollout.loglikelihoods, advantages, config, devices
    )
    critic_losses = jax.tree.map(_critic_loss, output.value_estimates, advantages)
    regularization_loss = jnp.mean(replayed.regularization_loss)
    loss = total(jax.tree.leaves(surrogates)) + config.critic_loss_weight * total(jax.tree.leaves(critic_losses))
    metrics: LossMetrics = {}
    if LoggingLevel.LOSSES in config.logging_level:
        metrics["losses/actor"] = surrogates
        metrics["losses/critic"] = critic_losses
        metrics["losses/regularization"] = regularization_loss
    if LoggingLevel.ACTOR_EXTRA in config.logging_level:
        metrics |= policy_change
    if LoggingLevel.CRITIC_EXTRA in config.logging_level:
        metrics |= _critic_extra(output.value_estimates, advantages, critic_losses)
    return loss + regularization_loss, metrics


def _actor_losses(
    loglikelihoods: Any, old_loglikelihoods: Any, advantages: Any, config: PPOConfig, devices: Devices
) -> tuple[Any, LossMetrics]:
    """The clipped surrogate (arXiv:1707.06347, equation 7) of each agent; how far the policies moved."""
    log_ratios = jax.tree.map(operator.sub, loglikelihoods, old_loglikelihoods)
    paired = _advantages_for(loglikelihoods, advantages, combine=config.combine_advantages)
    surrogates = jax.tree.map(
        lambda ratio, advantage: _surrogate(ratio, advantage, config, devices), log_ratios, paired
    )
    return surrogates, {
        "losses/clipping_fraction": jax.tree.map(lambda x: jnp.abs(jnp.exp(x) - 1) > config.clip_range, log_ratios),
        "losses/approximate_kl": jax.tree.map(lambda x: jnp.mean(jnp.exp(x) - 1 - x), log_ratios),
    }


def _surrogate(log_ratio: jax.Array, advantage: jax.Array, config: PPOConfig, devices: Devices) -> jax.Array:
    if config.normalize_advantages:
        mean, deviation = mean_and_deviation(advantage, devices)
        advantage = (advantage - mean) / (deviation + 1e-8)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def _advantages_for(loglikelihoods: Any, advantages: Any, *, combine: bool) -> Any:
    """One advantage for each log-likelihood leaf."""
    if combine:
        summed = total(jax.tree.leaves(advantages))
        return jax.tree.map(lambda _: summed, loglikelihoods)
    if same_structure(loglikelihoods, advantages):
        return advantages
    raise ValueError(
        f"the rewards have the structure {jax.tree.structure(advantages)}, the log-likelihoods "
        f"{jax.tree.structure(loglikelihoods)}: they cannot be paired. Set combine_advantages=True to sum "
        f"the advantages of all rewards, or return one log-likelihood a reward."
    )


def _critic_loss(value: jax.Array, advantage: jax.Array) -> jax.Array:
    """Half the mean squared error against the estimated returns."""
    target = jax.lax.stop_gradient(value) + advantage
    return 0.5 * jnp.mean(jnp.square(value - target))


def _critic_extra(values: Any, advantages: Any, losses: Any) -> LossMetrics:
    def explained(value: jax.Array, advantage: jax.Array, loss: jax.Array) -> jax.Array:
        return 1.0 - 2.0 * loss / (jnp.var(value + advantage) + 1e-8)

    return {
        "losses/advantages": advantages,
        "losses/predicted_value": values,
        "losses/critic_R^2": jax.tree.map(explained, values, advantages, losses),
    }
