"""Generalised advantage estimation."""

import jax
import jax.numpy as jnp


def gae(
    rewards: jax.Array,
    values: jax.Array,
    done: jax.Array,
    bootstrap_values: jax.Array,
    gae_lambda: float,
    discounting_factor: float,
) -> jax.Array:
    """Advantages by exponentially weighted temporal-difference errors (arXiv:1506.02438, equation 16).

    An episode's end cuts the sum. What lies behind it is worth `bootstrap_values`: 0 at a termination, the
    value of the final observation at a truncation. The last row is taken from there too, whether or not the
    episode ends in it.

    Args:
        rewards: float32 `[T, B]`.
        values: Estimated return before each step, float32 `[T, B]`.
        done: Whether the step ended the episode, bool `[T, B]`.
        bootstrap_values: Estimated return after a step that no row follows, float32 `[T, B]`.
        gae_lambda: Decay of the estimator.
        discounting_factor: Discount per step.

    Returns:
        float32 `[T, B]`.
    """
    cut = done.at[-1].set(True)
    next_values = jnp.where(cut, bootstrap_values, jnp.roll(values, -1, axis=0))
    errors = rewards + discounting_factor * next_values - values
    decay = jnp.where(cut, 0.0, discounting_factor * gae_lambda)

    def accumulate(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        error, factor = step
        advantage = error + factor * later
        return advantage, advantage

    _, advantages = jax.lax.scan(accumulate, jnp.zeros_like(errors[-1]), (errors, decay), reverse=True)
    return advantages
