"""Variational bottlenecks: noisy latents with a price for information, and one for change over time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput


class VariationalBottleneck(StatefulModule):
    """Draws a latent from a normal distribution and pays for its distance from the standard normal.

    The information bottleneck of arXiv:1612.00410 with the reparameterisation of arXiv:1312.6114. The noise comes from
    keys in the carry, one an environment, so that the loss repeats the very noise that was acted on. In evaluation
    mode (`eval()`) the mean is put out.
    """

    def __init__(
        self, latent_size: int, rng: Callable[[], jax.Array], kl_weight: float = 1.0, min_std: float = 1e-6
    ) -> None:
        """Make a bottleneck without parameters.

        Args:
            latent_size: Size of the latent; the input has twice that: means, and spreads before softplus.
            rng: Gives a key, as `nnx.Rngs` and its streams do; it seeds the keys of the carry.
            kl_weight: Weight of the Kullback-Leibler divergence in the loss, in units of loss a nat.
            min_std: Added to the standard deviation.
        """
        self.latent_size = latent_size
        self.stream = nnx.RngStream(rng(), tag="noise")
        self.kl_weight = kl_weight
        self.min_std = min_std
        self.deterministic = False

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map float32 `[B, 2 * latent_size]` to `[B, latent_size]`."""
        del rollout_extras
        keys, noise_keys = split_keys(module_state)
        z, divergence = self._draw(noise_keys, obs)
        return StatefulModuleOutput(keys, z, self.kl_weight * divergence, {"kl_divergence": divergence})

    def _draw(self, keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Latents `[B, latent_size]`, and their divergence from the standard normal in nats, `[B]`."""
        if obs.shape[-1] != 2 * self.latent_size:
            raise ValueError(
                f"{type(self).__name__}({self.latent_size}) got an input of shape {obs.shape}; its last axis must be "
                f"{2 * self.latent_size}: a mean and a spread for each latent."
            )
        mean, spread = jnp.split(obs, 2, axis=-1)
        std = jax.nn.softplus(spread) + self.min_std
        divergence = 0.5 * jnp.sum(jnp.square(mean) + jnp.square(std) - 2.0 * jnp.log(std) - 1.0, axis=-1)
        if self.deterministic:
            return mean, divergence
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.latent_size,), mean.dtype))(keys)
        return mean + std * noise, divergence

    def initialize_state(self, batch_size: int) -> Any:
        """Keys, `[B]`, drawn from the module's stream."""
        return jax.random.split(self.stream(), batch_size)

    def reset_state(self, prev_state: Any) -> Any:
        """The same chain of keys goes on."""
        return prev_state


class AR1VariationalBottleneck(VariationalBottleneck):
    """A variational bottleneck that also pays for how much its latent changes from step to step.

    The carry holds the last latent; NaN stands for "none yet", which costs nothing.
    """

    def __init__(
        self,
        latent_size: int,
        rng: Callable[[], jax.Array],
        kl_weight: float = 1.0,
        min_std: float = 1e-6,
        ar1_weight: float = 1.0,
        backprop_through_time: bool = True,  # noqa: FBT001, FBT002 - the known signature
    ) -> None:
        """Make a bottleneck without parameters.

        Args:
            latent_size: As in `VariationalBottleneck`.
            rng: As in `VariationalBottleneck`.
            kl_weight: As in `VariationalBottleneck`.
            min_std: As in `VariationalBottleneck`.
            ar1_weight: Weight of the mean squared change in the loss.
            backprop_through_time: Whether the gradient also moves the earlier latent towards the later one.
        """
        super().__init__(latent_size, rng, kl_weight, min_std)
        self.ar1_weight = ar1_weight
        self.backprop_through_time = backprop_through_time

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map float32 `[B, 2 * latent_size]` to `[B, latent_size]`."""
        del rollout_extras
        keys, noise_keys = split_keys(module_state["keys"])
        z, divergence = self._draw(noise_keys, obs)
        change = self._change(module_state["last_z"], z)
        return StatefulModuleOutput(
            {"keys": keys, "last_z": z},
            z,
            self.kl_weight * divergence + self.ar1_weight * change,
            {"kl_divergence": divergence, "squared_change": change},
        )

    def _change(self, before: jax.Array, z: jax.Array) -> jax.Array:
        """Mean squared change, `[B]`; 0 at the start of an episode, in value and in gradient."""
        before = before if self.backprop_through_time else jax.lax.stop_gradient(before)
        # The difference of z to itself, where nothing came before: a NaN times 0 would be NaN in the gradient.
        return jnp.mean(jnp.square(z - jnp.where(jnp.isnan(before), z, before)), axis=-1)

    def initialize_state(self, batch_size: int) -> dict[str, Any]:
        """Keys, and no latent yet."""
        return {
            "keys": super().initialize_state(batch_size),
            "last_z": jnp.full((batch_size, self.latent_size), jnp.nan),
        }

    def reset_state(self, prev_state: dict[str, Any]) -> dict[str, Any]:
        """The same chain of keys, and no latent yet."""
        return {"keys": prev_state["keys"], "last_z": jnp.full_like(prev_state["last_z"], jnp.nan)}


def split_keys(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """From each key of `[B]`, the key of the next step and one to draw with, independent of it."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]
