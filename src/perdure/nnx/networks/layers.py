"""The dense layer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput

Initializer = Callable[[jax.Array, tuple[int, ...]], jax.Array]
Activation = Callable[[jax.Array], jax.Array]

_NARROW = 16
"""Columns of a kernel up to which its gradient's transpose is quicker."""

default_kernel_init: Initializer = nnx.initializers.lecun_normal()


def check_input(layer: str, in_features: int, obs: jax.Array) -> None:
    """Refuses an input of another size than the layer was built for.

    Raises:
        ValueError: If the last axis has another size; the message names the layer.
    """
    if obs.shape[-1] != in_features:
        raise ValueError(
            f"{layer} got an input of shape {obs.shape}, whose last axis is not {in_features}. "
            "Build the network for this environment's sizes."
        )


class Dense(StatefulModule):
    """An affine map of the last axis, followed by an activation."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rngs: nnx.Rngs,
        *,
        activation: Activation | None = None,
        kernel_init: Initializer = default_kernel_init,
    ) -> None:
        """Draw the kernel; the bias starts at zero.

        Args:
            in_features: Size of the input's last axis.
            out_features: Size of the output's last axis.
            rngs: Its `params` stream seeds the kernel.
            activation: Applied to the result, if given.
            kernel_init: Called with a key and the shape `(in_features, out_features)`.
        """
        self.in_features = in_features
        self.out_features = out_features
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features)))
        self.bias = nnx.Param(jnp.zeros((out_features,)))
        self.activation = activation

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map float32 `[B, in_features]` to `[B, out_features]`.

        Raises:
            ValueError: If the input has another size.
        """
        del rollout_extras
        check_input(f"Dense({self.in_features}, {self.out_features})", self.in_features, obs)
        result = _product(obs, self.kernel[...]) + self.bias[...]
        return StatefulModuleOutput(module_state, result if self.activation is None else self.activation(result))


def _product(obs: jax.Array, kernel: jax.Array) -> jax.Array:
    """`obs @ kernel`; the gradient of a narrow kernel is computed as its transpose.

    XLA's CPU products of two tall matrices take a third of the time with the narrow one first. The barrier keeps it
    from turning the transpose around again. Wide kernels gain nothing from it.
    """
    if kernel.shape[1] > _NARROW:
        return obs @ kernel
    return obs @ jax.lax.optimization_barrier(kernel.T).T
