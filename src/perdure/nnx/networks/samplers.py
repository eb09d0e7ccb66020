"""Modules that turn distribution parameters into actions and their log-likelihoods."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.types import SamplerOutput, StatefulModule, StatefulModuleOutput

# Twice the density of the logistic distribution is the second derivative of log(2 cosh(x)), and that distribution is a
# mixture of normal ones about 0 (Andrews and Mallows, 1974). Four of them, (weight, standard deviation), found by a
# minimax fit on [0, 14], give log(2 cosh(x)) to 4e-6 wherever x is; tests/nnx/networks/test_samplers.py measures it.
_LOGISTIC_MIXTURE = (
    (0.14621797454216634, 0.5091721052299439),
    (0.5004721553767681, 0.7568865545428308),
    (0.3161104793378485, 1.1205038728192094),
    (0.03719939074321712, 1.647387678101329),
)


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
    action: it includes the logarithm of tanh's slope. The raw (unsquashed) action is kept for the loss, because undoing
    tanh near ±1 loses it.
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
    """Differential entropy of the squashed distribution, to 1e-5 a component; `[..., size]` to `[...]`.

    It has nearly a closed form: the logarithm of tanh's slope at `x` is `-2 log(cosh(x))`, and that
    is nearly a sum of `E|x + z|` over normal `z`, whose expectation under a normal `x` is of the same kind with the
    variances added. A Monte Carlo estimate would need random numbers in the loss, and the normal's own entropy grows
    without bound while the squashed distribution degenerates to ±1.
    """
    normal = 0.5 * math.log(2 * math.pi * math.e) + jnp.log(std)
    log_2_cosh = sum(
        weight * _mean_magnitude(mean, jnp.sqrt(jnp.square(std) + width**2)) for weight, width in _LOGISTIC_MIXTURE
    )
    return jnp.sum(normal + 2.0 * (math.log(2.0) - log_2_cosh), axis=-1)


@jax.custom_jvp
def _mean_magnitude(mean: jax.Array, std: jax.Array) -> jax.Array:
    """`E|x|` for a normal `x`."""
    value, _, _ = _mean_magnitude_and_slopes(mean, std)
    return value


@_mean_magnitude.defjvp
def _(primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    # Differentiating the formula term by term gives the same through parts that cancel.
    value, by_mean, by_std = _mean_magnitude_and_slopes(*primals)
    return value, by_mean * tangents[0] + by_std * tangents[1]


def _mean_magnitude_and_slopes(mean: jax.Array, std: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    standardised = mean / (math.sqrt(2.0) * std)
    by_mean = jax.lax.erf(standardised)
    by_std = math.sqrt(2.0 / math.pi) * jnp.exp(-jnp.square(standardised))
    return mean * by_mean + std * by_std, by_mean, by_std


def _log_tanh_slope(x: jax.Array) -> jax.Array:
    """`log(1 - tanh(x)**2)` without cancellation: `-2 * log(cosh(x))`."""
    magnitude = jnp.abs(x)
    return 2.0 * (math.log(2.0) - magnitude - jnp.log1p(jnp.exp(-2.0 * magnitude)))
