"""PPO's loss for one minibatch of rollouts."""

from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.config import PPOConfig
from perdure.nnx.gae import gae
from perdure.nnx.networks.types import PPONetworkOutput, StatefulModule, StatefulModuleOutput
from perdure.nnx.rollout import Transition, reset_carries
from perdure.nnx.trees import flatten_time, same_structure, total, unflatten_time

Metrics = dict[str, jax.Array]


def ppo_loss(
    networks: StatefulModule, network_states: Any, rollout: Transition, config: PPOConfig
) -> tuple[jax.Array, Metrics]:
    """The clipped surrogate, the critic's squared error and the networks' own regularisation.

    Advantages are estimated anew from the current critic. Traceable and differentiable in the parameters.

    Args:
        networks: The networks to train.
        network_states: Their carries at the start of the rollout, leading axis `B`.
        rollout: What was experienced, leading axes `[T, B]`.
        config: `clip_range`, `critic_loss_weight`, and what concerns advantages.

    Returns:
        The loss, a scalar, and its parts as scalars.

    Raises:
        ValueError: If log-likelihoods and advantages cannot be paired.
    """
    replayed = replay(networks, network_states, rollout)
    output: PPONetworkOutput = replayed.output
    advantages = jax.tree.map(
        lambda reward, value, bootstrap: gae(
            reward, value, rollout.done, bootstrap, config.gae_lambda, config.discounting_factor
        ),
        rollout.rewards,
        jax.lax.stop_gradient(output.value_estimates),
        rollout.bootstrap_values,
    )
    actor_loss, metrics = _actor_loss(output.loglikelihoods, rollout.loglikelihoods, advantages, config)
    critic_loss = _critic_loss(output.value_estimates, advantages)
    regularization_loss = jnp.mean(replayed.regularization_loss)
    metrics |= {
        "losses/actor": actor_loss,
        "losses/critic": critic_loss,
        "losses/regularization": regularization_loss,
        **_flat_metrics(replayed.metrics),
    }
    return actor_loss + config.critic_loss_weight * critic_loss + regularization_loss, metrics


def replay(networks: StatefulModule, network_states: Any, rollout: Transition) -> StatefulModuleOutput:
    """Repeat the rollout's network calls with the current parameters; leaves `[T, B, ...]`.

    A network without carry is called once on all steps: a scan over time costs several times as much.
    """
    if not jax.tree.leaves(network_states):
        flat = flatten_time((rollout.obs, rollout.rollout_extras))
        result = networks(network_states, *flat)
        return _broadcast_and_unflatten(result, *rollout.done.shape)

    def step(carry: Any, row: tuple[Any, Any, jax.Array]) -> tuple[Any, StatefulModuleOutput]:
        obs, extras, done = row
        result = networks(carry, obs, extras)
        return reset_carries(networks, done, result.next_state), result

    _, result = jax.lax.scan(step, network_states, (rollout.obs, rollout.rollout_extras, rollout.done))
    return result


def _broadcast_and_unflatten(result: StatefulModuleOutput, length: int, batch: int) -> StatefulModuleOutput:
    def expand(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf, (length * batch,)) if jnp.ndim(leaf) == 0 else leaf

    return unflatten_time(jax.tree.map(expand, result), length)


def _actor_loss(
    loglikelihoods: Any, old_loglikelihoods: Any, advantages: Any, config: PPOConfig
) -> tuple[jax.Array, Metrics]:
    """The clipped surrogate (arXiv:1707.06347, equation 7), summed over agents; how far the policy moved."""
    pairs = list(
        zip(
            jax.tree.leaves(loglikelihoods),
            jax.tree.leaves(old_loglikelihoods),
            _advantages_for(loglikelihoods, advantages, combine=config.combine_advantages),
            strict=True,
        )
    )
    parts = [_surrogate(new - old, advantage, config) for new, old, advantage in pairs]
    log_ratio = jnp.stack([new - old for new, old, _ in pairs])
    ratio = jnp.exp(log_ratio)
    return total(parts), {
        "losses/clipping_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip_range, dtype=jnp.float32),
        "losses/approximate_kl": jnp.mean(ratio - 1 - log_ratio),
    }


def _surrogate(log_ratio: jax.Array, advantage: jax.Array, config: PPOConfig) -> jax.Array:
    if config.normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def _advantages_for(loglikelihoods: Any, advantages: Any, *, combine: bool) -> list[jax.Array]:
    """One advantage for each log-likelihood leaf."""
    leaves = jax.tree.leaves(advantages)
    if combine:
        return [total(leaves)] * len(jax.tree.leaves(loglikelihoods))
    if same_structure(loglikelihoods, advantages):
        return leaves
    raise ValueError(
        f"the rewards have the structure {jax.tree.structure(advantages)}, the log-likelihoods "
        f"{jax.tree.structure(loglikelihoods)}: they cannot be paired. Set combine_advantages=True to sum "
        f"the advantages of all rewards, or return one log-likelihood a reward."
    )


def _critic_loss(values: Any, advantages: Any) -> jax.Array:
    """Half the mean squared error against the estimated returns, summed over value heads."""

    def one(value: jax.Array, advantage: jax.Array) -> jax.Array:
        target = jax.lax.stop_gradient(value) + advantage
        return 0.5 * jnp.mean(jnp.square(value - target))

    losses = jax.tree.leaves(jax.tree.map(one, values, advantages))
    return total(losses)


def _flat_metrics(metrics: dict[str, Any]) -> Metrics:
    """Nested metrics under joined names, averaged."""
    leaves = jax.tree_util.tree_leaves_with_path(metrics)
    return {
        "networks/" + jax.tree_util.keystr(path, simple=True, separator="/"): jnp.mean(leaf) for path, leaf in leaves
    }
