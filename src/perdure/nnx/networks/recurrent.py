"""Modules with a carry: an LSTM, and a delay of some steps."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.layers import Activation, Initializer, check_input
from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput

Carry = tuple[jax.Array, jax.Array]
"""Cell and output of an LSTM, float32 `[B, hidden_features]` each, in the order of `flax.nnx.LSTMCell`."""


class LSTM(StatefulModule):
    """A long short-term memory (Hochreiter and Schmidhuber 1997), built from Flax's cells.

    Its carry starts anew with each episode: at zero, or where the training puts it.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        rngs: nnx.Rngs,
        *,
        gate_fn: Activation = nnx.sigmoid,
        activation_fn: Activation = nnx.tanh,
        kernel_init: Initializer | None = None,
        recurrent_kernel_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        use_optimized: bool = True,
        trainable_initial_state: bool = False,
    ) -> None:
        """Draw the kernels.

        Args:
            in_features: Size of the input's last axis.
            hidden_features: Size of the carry and of the output.
            rngs: Its `params` stream seeds the kernels.
            gate_fn: Of the gates.
            activation_fn: Of the cell.
            kernel_init: Draws the kernels of the input; Flax's default if None.
            recurrent_kernel_init: Draws the kernels of the carry; Flax's default if None.
            bias_init: Draws the biases; Flax's default if None.
            use_optimized: Whether the four gates share one product, which is faster at usual sizes.
            trainable_initial_state: Whether the carry's start is a parameter, at zero in the beginning.
        """
        self.in_features = in_features
        self.hidden_features = hidden_features
        initializers: dict[str, Any] = {
            "kernel_init": kernel_init,
            "recurrent_kernel_init": recurrent_kernel_init,
            "bias_init": bias_init,
        }
        cell = nnx.OptimizedLSTMCell if use_optimized else nnx.LSTMCell
        self.cell = cell(
            in_features,
            hidden_features,
            gate_fn=gate_fn,
            activation_fn=activation_fn,
            rngs=rngs,
            **{name: given for name, given in initializers.items() if given is not None},
        )
        self.trainable_initial_state = trainable_initial_state
        if trainable_initial_state:
            self.initial_c = nnx.Param(jnp.zeros((hidden_features,)))
            self.initial_h = nnx.Param(jnp.zeros((hidden_features,)))

    def __call__(self, module_state: Carry, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Map float32 `[B, in_features]` to `[B, hidden_features]`.

        Raises:
            ValueError: If the input has another size.
        """
        del rollout_extras
        check_input(f"LSTM({self.in_features}, {self.hidden_features})", self.in_features, obs)
        carry, output = self.cell(module_state, obs)
        return StatefulModuleOutput(carry, output)

    def initialize_state(self, batch_size: int) -> Carry:
        """The carry of `batch_size` episodes that begin."""
        return tuple(jnp.broadcast_to(part, (batch_size, self.hidden_features)) for part in self._start())  # pyright: ignore[reportReturnType]

    def reset_state(self, prev_state: Carry) -> Carry:
        """The carry of an episode that begins, whatever it was."""
        return tuple(  # pyright: ignore[reportReturnType]
            jnp.broadcast_to(part, before.shape) for part, before in zip(self._start(), prev_state, strict=True)
        )

    def _start(self) -> Carry:
        if self.trainable_initial_state:
            return self.initial_c[...], self.initial_h[...]
        return jnp.zeros((self.hidden_features,)), jnp.zeros((self.hidden_features,))


class InputSample(nnx.Variable[Any]):
    """An input without batch axis, of which only shapes and dtypes count."""


class Delay(StatefulModule):
    """Puts out what came in `k_steps` steps ago; in the first steps of an episode, a fixed value.

    The carry is a ring for each leaf, `[B, k_steps, …]`, and the place in it that is read and written next, int32
    `[B]`: episodes of a batch begin at different times.
    """

    def __init__(self, sample_input: Any, k_steps: int, initial_value: float = 0.0) -> None:
        """Take the shapes of the input.

        Args:
            sample_input: One input without batch axis, a pytree of arrays; its values do not matter.
            k_steps: The delay, at least 1.
            initial_value: What comes out before anything could.

        Raises:
            ValueError: If the delay is less than 1.
        """
        if k_steps < 1:
            raise ValueError(f"Delay: k_steps must be at least 1, got {k_steps}.")
        self.k_steps = k_steps
        self.initial_value = initial_value
        self.sample = InputSample(jax.tree.map(jnp.zeros_like, sample_input))

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Exchange the oldest input for the newest."""
        del rollout_extras
        rows, place = jnp.arange(module_state["idx"].shape[0]), module_state["idx"]
        delayed = jax.tree.map(lambda ring: ring[rows, place], module_state["buffer"])
        buffer = jax.tree.map(lambda ring, leaf: ring.at[rows, place].set(leaf), module_state["buffer"], obs)
        return StatefulModuleOutput({"buffer": buffer, "idx": (place + 1) % self.k_steps}, delayed)

    def initialize_state(self, batch_size: int) -> dict[str, Any]:
        """Empty rings."""
        buffer = jax.tree.map(
            lambda leaf: jnp.full((batch_size, self.k_steps, *leaf.shape), self.initial_value, leaf.dtype),
            self.sample.get_value(),
        )
        return {"buffer": buffer, "idx": jnp.zeros((batch_size,), jnp.int32)}

    def reset_state(self, prev_state: dict[str, Any]) -> dict[str, Any]:
        """An empty ring."""
        buffer = jax.tree.map(lambda ring: jnp.full_like(ring, self.initial_value), prev_state["buffer"])
        return {"buffer": buffer, "idx": jnp.zeros_like(prev_state["idx"])}
