"""Modules made of modules: a chain, and the pair of actor and critic that PPO trains."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from perdure.nnx.networks.types import (
    PPONetworkOutput,
    SamplerOutput,
    StatefulModule,
    StatefulModuleOutput,
    extras_for,
)
from perdure.nnx.trees import flatten_time, total, unflatten_time

_Call = Callable[[int, StatefulModule, Any], StatefulModuleOutput]
"""Calls the module at an index on an input."""


class Sequential(StatefulModule):
    """Modules one after another; its state and its extras are tuples with one entry a module."""

    def __init__(self, layers: Sequence[StatefulModule]) -> None:
        """Chain `layers`, the first one nearest to the observation."""
        self.layers = nnx.List(layers)

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Feed each module the output of the one before; sum losses, file metrics by position."""

        def call(index: int, layer: StatefulModule, given: Any) -> StatefulModuleOutput:
            return layer(module_state[index], given, extras_for(rollout_extras, index))

        return self._chained(call, obs)

    def replay(self, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array) -> StatefulModuleOutput:
        """Each module's own."""
        if type(self).__call__ is not Sequential.__call__:
            return super().replay(module_state, obs, rollout_extras, done)

        def call(index: int, layer: StatefulModule, given: Any) -> StatefulModuleOutput:
            return layer.replay(module_state[index], given, rollout_extras[index], done)

        return self._chained(call, obs)

    def _chained(
        self, call: Callable[[int, StatefulModule, Any], StatefulModuleOutput], obs: Any
    ) -> StatefulModuleOutput:
        results: list[StatefulModuleOutput] = []
        output = obs
        for index, layer in enumerate(self.layers):
            results.append(call(index, layer, output))
            output = results[-1].output
        return StatefulModuleOutput(
            next_state=tuple(result.next_state for result in results),
            output=output,
            regularization_loss=total(result.regularization_loss for result in results),
            metrics={str(i): result.metrics for i, result in enumerate(results) if result.metrics},
            rollout_extras=tuple(result.rollout_extras for result in results),
        )

    def initialize_state(self, batch_size: int) -> tuple[Any, ...]:
        """One state a module."""
        return tuple(layer.initialize_state(batch_size) for layer in self.layers)

    def reset_state(self, prev_state: Any) -> tuple[Any, ...]:
        """Each module's own reset."""
        return tuple(layer.reset_state(state) for layer, state in zip(self.layers, prev_state, strict=True))

    def update_statistics(self, rollout_extras: Any) -> None:
        """Hand each module its own extras."""
        for index, layer in enumerate(self.layers):
            layer.update_statistics(rollout_extras[index])


class PPOAdapter(StatefulModule):
    """An actor and a critic that see the same input, joined into one `PPONetworkOutput`."""

    def __init__(self, action: StatefulModule, value: StatefulModule) -> None:
        """Join the two.

        Args:
            action: Its output is a `SamplerOutput`, or a pytree of them (one an agent).
            value: Its output is float32 `[B]` or `[B, 1]`, or a pytree of such leaves (one a reward).
        """
        self.action = action
        self.value = value

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Run both."""
        action = self.action(module_state["action"], obs, extras_for(rollout_extras, "action"))
        value = self.value(module_state["value"], obs, extras_for(rollout_extras, "value"))
        return _joined(action, value, jax.tree.map(_drop_last_axis, value.output))

    def replay(self, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array) -> StatefulModuleOutput:
        """Both replays."""
        if type(self).__call__ is not PPOAdapter.__call__:
            return super().replay(module_state, obs, rollout_extras, done)
        action = self.action.replay(module_state["action"], obs, rollout_extras["action"], done)
        value = self.value.replay(module_state["value"], obs, rollout_extras["value"], done)
        values = jax.tree.map(_drop_last_axis, flatten_time(value.output))
        return _joined(action, value, unflatten_time(values, done.shape[0]))

    def initialize_state(self, batch_size: int) -> dict[str, Any]:
        """Both states."""
        return {
            "action": self.action.initialize_state(batch_size),
            "value": self.value.initialize_state(batch_size),
        }

    def reset_state(self, prev_state: Any) -> dict[str, Any]:
        """Both resets."""
        return {
            "action": self.action.reset_state(prev_state["action"]),
            "value": self.value.reset_state(prev_state["value"]),
        }

    def update_statistics(self, rollout_extras: Any) -> None:
        """Hand both their extras."""
        self.action.update_statistics(rollout_extras["action"])
        self.value.update_statistics(rollout_extras["value"])


def _joined(action: StatefulModuleOutput, value: StatefulModuleOutput, values: Any) -> StatefulModuleOutput:
    parts = {"action": action, "value": value}
    return StatefulModuleOutput(
        next_state={name: part.next_state for name, part in parts.items()},
        output=PPONetworkOutput(
            actions=_each_sampler(action.output, "action"),
            loglikelihoods=_each_sampler(action.output, "loglikelihood"),
            value_estimates=values,
        ),
        regularization_loss=action.regularization_loss + value.regularization_loss,
        metrics={name: part.metrics for name, part in parts.items() if part.metrics},
        rollout_extras={name: part.rollout_extras for name, part in parts.items()},
    )


def _is_sampler_output(node: Any) -> bool:
    return isinstance(node, SamplerOutput)


def _each_sampler(output: Any, field: str) -> Any:
    """One field of every `SamplerOutput` in a pytree of them."""

    def get(node: Any) -> Any:
        if not _is_sampler_output(node):
            raise TypeError(
                f"PPOAdapter: the action module returned {type(node).__name__}, not SamplerOutput. "
                "End it with a sampler (NormalTanhSampler, CategoricalSampler)."
            )
        return getattr(node, field)

    return jax.tree.map(get, output, is_leaf=_is_sampler_output)


def _drop_last_axis(value: jax.Array) -> jax.Array:
    if value.ndim == 2 and value.shape[-1] == 1:
        return value[:, 0]
    if value.ndim == 1:
        return value
    raise ValueError(f"PPOAdapter: a value estimate has shape {value.shape}; expected [B] or [B, 1].")
