"""Running mean and variance of observations, with a count that never loses one."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput


class NormalizerMean(nnx.Variable):
    """Mean so far, float32 of the observation's shape."""


class NormalizerM2(nnx.Variable):
    """Sum of squared deviations so far, float32 `[2, ...]`: the sum, and what rounding kept out of it."""


class NormalizerCounter(nnx.Variable):
    """Number of observations so far, uint32 `[2]`: the high and the low word of an exact 64-bit count."""


class Normalizer(StatefulModule):
    """Brings observations to mean 0 and variance 1 by the statistics of all rollouts before the current one.

    The statistics change between iterations only (`update_statistics`), so that the loss sees the policy that
    acted. They are merged batch by batch (Chan, Golub, LeVeque 1979, the parallel form of Welford's update).
    A float32 count would stop at 2**24, and a plain float32 sum of squares some orders later, after which the
    variance shrinks to zero; hence the two words and the compensated sum.
    """

    def __init__(self, shape: int | tuple[int, ...], *, min_variance: float = 1e-6) -> None:
        """Start without statistics; until the first update, observations pass unchanged.

        Args:
            shape: Shape of one observation, or its size.
            min_variance: Floor of the variance, for components that never change.
        """
        self.min_variance = min_variance
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        self.mean = NormalizerMean(jnp.zeros(size))
        self.m2 = NormalizerM2(jnp.zeros((2, *size)))
        self.counter = NormalizerCounter(jnp.zeros((2,), jnp.uint32))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Normalise float32 `[B, ...]`; the extras are the input itself."""
        del rollout_extras
        expected = self.mean[...].shape
        if obs.shape[1:] != expected:
            raise ValueError(f"Normalizer was made for observations of shape {expected}, but got {obs.shape[1:]}.")
        normalized = (obs - self.mean[...]) * jax.lax.rsqrt(self.variance())
        return StatefulModuleOutput(module_state, normalized, rollout_extras={"input": obs})

    def variance(self) -> jax.Array:
        """Population variance per component, not below the floor; 1 before the first update."""
        count = count_as_float(self.counter[...])
        variance = self.m2[...].sum(axis=0) / jnp.maximum(count, 1.0)
        return jnp.where(count > 0, jnp.maximum(variance, self.min_variance), 1.0)

    def count(self) -> int:
        """The exact number of observations seen (reads the device)."""
        high, low = (int(word) for word in self.counter[...])
        return (high << 32) + low

    def update_statistics(self, rollout_extras: Any) -> None:
        """Merge the observations of a rollout, `[T, B, ...]`."""
        shape = self.mean[...].shape
        batch = rollout_extras["input"].reshape((-1, *shape))
        added = batch.shape[0]
        counter = add_to_count(self.counter[...], added)
        batch_mean = batch.mean(axis=0)
        batch_m2 = jnp.square(batch - batch_mean).sum(axis=0)
        delta = batch_mean - self.mean[...]
        weight = added / count_as_float(counter)
        between = jnp.square(delta) * (count_as_float(self.counter[...]) * weight)
        self.m2[...] = _add_compensated(self.m2[...], batch_m2 + between)
        self.mean[...] = self.mean[...] + delta * weight
        self.counter[...] = counter


def add_to_count(words: jax.Array, added: int) -> jax.Array:
    """The count `words` (uint32 `[2]`, high and low) plus a positive number below 2**32, carried exactly."""
    if not 0 < added < 2**32:
        raise ValueError(f"a batch of {added} observations cannot be counted: expected 1 to 2**32 - 1.")
    low = words[1] + jnp.uint32(added)
    carry = (low < jnp.uint32(added)).astype(jnp.uint32)
    return jnp.stack([words[0] + carry, low])


def count_as_float(words: jax.Array) -> jax.Array:
    """The count as the nearest float32, for weights; the words themselves stay exact."""
    return words[0].astype(jnp.float32) * float(math.pow(2, 32)) + words[1].astype(jnp.float32)


def _add_compensated(total: jax.Array, addend: jax.Array) -> jax.Array:
    """Neumaier's sum: `total` is `[sum, rest]`, and no bit of a small addend is lost to a large sum."""
    old, rest = total[0], total[1]
    new = old + addend
    lost = jnp.where(jnp.abs(old) >= jnp.abs(addend), (old - new) + addend, (addend - new) + old)
    return jnp.stack([new, rest + lost])
