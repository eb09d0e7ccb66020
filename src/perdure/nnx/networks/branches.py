"""Containers of named modules: side by side on one input, or each on its own part of it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput, extras_for
from perdure.nnx.trees import total


class Branches(StatefulModule):
    """What containers of named modules share: states, extras and metrics are dicts by name, losses are summed."""

    def __init__(self, modules: Mapping[str, StatefulModule] | None = None, /, **named: StatefulModule) -> None:
        """Name the modules: by keywords, or by a dict where a name is no identifier.

        Raises:
            ValueError: If both or neither are given.
        """
        if modules is not None and named:
            raise ValueError(f"{type(self).__name__}: give a dict or keywords, not both.")
        if not (modules or named):
            raise ValueError(f"{type(self).__name__}: at least one module is needed.")
        self.components = nnx.Dict(dict(modules or named))

    def _input_of(self, obs: Any, name: str) -> Any:
        """What the module called `name` sees: the whole input."""
        return obs

    def _joined(self, outputs: dict[str, Any]) -> Any:
        """The output of the container: a dict by name."""
        return outputs

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Run every module once."""
        return self._side_by_side(
            {
                name: component(module_state[name], self._input_of(obs, name), extras_for(rollout_extras, name))
                for name, component in self.components.items()
            }
        )

    def replay(self, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array) -> StatefulModuleOutput:
        """Each module's own."""
        if type(self).__call__ is not Branches.__call__:
            return super().replay(module_state, obs, rollout_extras, done)
        return self._side_by_side(
            {
                name: component.replay(module_state[name], self._input_of(obs, name), rollout_extras[name], done)
                for name, component in self.components.items()
            }
        )

    def _side_by_side(self, results: dict[str, StatefulModuleOutput]) -> StatefulModuleOutput:
        return StatefulModuleOutput(
            next_state={name: result.next_state for name, result in results.items()},
            output=self._joined({name: result.output for name, result in results.items()}),
            regularization_loss=total(result.regularization_loss for result in results.values()),
            metrics={name: result.metrics for name, result in results.items() if result.metrics},
            rollout_extras={name: result.rollout_extras for name, result in results.items()},
        )

    def initialize_state(self, batch_size: int) -> dict[str, Any]:
        """One state a module."""
        return {name: component.initialize_state(batch_size) for name, component in self.components.items()}

    def reset_state(self, prev_state: Any) -> dict[str, Any]:
        """Each module's own reset."""
        return {name: component.reset_state(prev_state[name]) for name, component in self.components.items()}

    def update_statistics(self, rollout_extras: Any) -> None:
        """Hand each module its own extras."""
        for name, component in self.components.items():
            component.update_statistics(rollout_extras[name])


class Parallel(Branches):
    """All modules on the same input; a dict of their outputs."""


class Map(Branches):
    """Each module on the entry of its own name; a dict of their outputs. Other entries are dropped."""

    def _input_of(self, obs: Any, name: str) -> Any:
        if name not in obs:
            raise ValueError(f"{type(self).__name__}: the input has no entry {name!r}; it has {sorted(obs)}.")
        return obs[name]


class Concat(Map):
    """Each module on the entry of its own name; their outputs joined along the last axis, in the modules' order."""

    def _joined(self, outputs: dict[str, Any]) -> Any:
        return jnp.concatenate([outputs[name] for name in self.components], axis=-1)


class Merge(Branches):
    """All modules on the same input; each returns a dict, and these are made one.

    Raises:
        TypeError: When called, if a module returns no dict.
        ValueError: When called, if two of them have a key in common.
    """

    def _joined(self, outputs: dict[str, Any]) -> Any:
        merged: dict[str, Any] = {}
        for name, output in outputs.items():
            if not isinstance(output, Mapping):
                raise TypeError(f"Merge: {name!r} returned a {type(output).__name__}; each module must return a dict.")
            twice = sorted(merged.keys() & output.keys())
            if twice:
                raise ValueError(f"Merge: {name!r} returned the keys {twice}, which another module returned too.")
            merged |= output
        return merged
