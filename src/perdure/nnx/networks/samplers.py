"""Modules that turn distribution parameters into actions and their log-likelihoods."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from perdure.nnx.networks.types import SamplerOutput, StatefulModule, StatefulModuleOutput

# Nodes and weights of Gauss-Hermite quadrature for expectations under a standard normal. With 16 nodes the entropy
# of the tanh-normal distribution is exact to 1e-3 up to a standard deviation of 1, and to 5e-2 up to 3.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
_QUADRATURE = np.stack([_NODES, _WEIGHTS / math.sqrt(2 * math.pi)], axis=1)


class Sampler(StatefulModule):
    """Base class: owns a random stream, and a switch that `eval()` and `train()` of any parent turn.

    While acting it draws an action and returns what it drew as rollout extras; given those extras, it
    evaluates their likelihood and draws nothing. The negative entropy, times `entropy_weight`, is its
    regularisation loss.

    Attributes:
        deterministic: Whether the most likely action is taken instead of a drawn one.
    """

    def __init__(self, rngs: nnx.Rngs, *, entropy_weight: float) -> None:
        """Fork a stream of its own from `rngs`."""
        self.stream = nnx.RngStream(rngs.action(), tag="action")
        self.entropy_weight = entropy_weight
        self.deterministic = False

    def _result(
        self, module_state: Any, output: SamplerOutput, entropy: jax.Array, raw_action: jax.Array
    ) -> StatefulModuleOutput:
        return StatefulModuleOutput(
            next_state=module_state,
            output=output,
            regularization_loss=-self.entropy_weight * entropy,
            metrics={"entropy": entropy},
            rollout_extras={"raw_action": raw_action},
        )


class CategoricalSampler(Sampler):
    """Draws one of `n` actions from unnormalised log-probabilities."""

    def __init__(self, rngs: nnx.Rngs, *, entropy_weight: float = 1e-2) -> None:
        """Make a sampler.

        Args:
            rngs: Its `action` stream seeds the draws.
            entropy_weight: Weight of the entropy bonus.
        """
        super().__init__(rngs, entropy_weight=entropy_weight)

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map logits, float32 `[B, n]`, to actions, int32 `[B]`."""
        log_probabilities = jax.nn.log_softmax(obs, axis=-1)
        action = self._choose(obs) if rollout_extras is None else rollout_extras["raw_action"]
        loglikelihood = jnp.take_along_axis(log_probabilities, action[:, None], axis=-1)[:, 0]
        entropy = -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)
        return self._result(module_state, SamplerOutput(action, loglikelihood), entropy, action)

    def _choose(self, logits: jax.Array) -> jax.Array:
        if self.deterministic:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return jax.random.categorical(self.stream(), logits, axis=-1).astype(jnp.int32)


class NormalTanhSampler(Sampler):
    """Draws from independent normal distributions and squashes the result into (-1, 1) by tanh.

    The standard deviation is `(softplus(s) + min_std) * std_scale`. The likelihood is that of the squashed
    action: it includes the logarithm of tanh's slope. The raw (unsquashed) action is kept for the loss,
        because undoing tanh
    near ±1 loses it.
    """

    def __init__(
        self, rngs: nnx.Rngs, *, entropy_weight: float = 1e-2, min_std: float = 1e-1, std_scale: float = 1.0
    ) -> None:
        """Make a sampler.

        Args:
            rngs: Its `action` stream seeds the draws.
            entropy_weight: Weight of the entropy bonus.
            min_std: Added to the standard deviation before scaling.
            std_scale: Factor of the standard deviation.
        """
        super().__init__(rngs, entropy_weight=entropy_weight)
        self.min_std = min_std
        self.std_scale = std_scale

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map means and spreads, float32 `[B, 2 * size]`, to actions, float32 `[B, size]`."""
        mean, spread = jnp.split(obs, 2, axis=-1)
        std = (jax.nn.softplus(spread) + self.min_std) * self.std_scale
        raw = self._choose(mean, std) if rollout_extras is None else rollout_extras["raw_action"]
        output = SamplerOutput(jnp.tanh(raw), tanh_normal_log_prob(raw, mean, std))
        return self._result(module_state, output, tanh_normal_entropy(mean, std), raw)

    def _choose(self, mean: jax.Array, std: jax.Array) -> jax.Array:
        if self.deterministic:
            return mean
        return mean + std * jax.random.normal(self.stream(), mean.shape)


def tanh_normal_log_prob(raw_action: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Log-density of `tanh(raw_action)` where `raw_action` is normal; `[..., size]` to `[...]`."""
    normal = -0.5 * jnp.square((raw_action - mean) / std) - jnp.log(std) - 0.5 * math.log(2 * math.pi)
    return jnp.sum(normal - _log_tanh_slope(raw_action), axis=-1)


def tanh_normal_entropy(mean: jax.Array, std: jax.Array) -> jax.Array:
    """Differential entropy of the squashed distribution, by quadrature; `[..., size]` to `[...]`.

    It has no closed form. A Monte Carlo estimate would need random numbers in the loss, and the normal's own
    entropy grows without bound while the squashed distribution degenerates to ±1.
    """
    normal = 0.5 * math.log(2 * math.pi * math.e) + jnp.log(std)

    def add(total: jax.Array, node: jax.Array) -> tuple[jax.Array, None]:
        return total + node[1] * _log_tanh_slope(mean + std * node[0]), None

    # A loop, because all nodes at once are fused with what comes before them into code that is several times slower.
    slope, _ = jax.lax.scan(add, jnp.zeros_like(mean), jnp.array(_QUADRATURE, mean.dtype))
    return jnp.sum(normal + slope, axis=-1)


def _log_tanh_slope(x: jax.Array) -> jax.Array:
    """`log(1 - tanh(x)**2)` without cancellation: `-2 * log(cosh(x))`."""
    magnitude = jnp.abs(x)
    return 2.0 * (math.log(2.0) - magnitude - jnp.log1p(jnp.exp(-2.0 * magnitude)))
