"""What every network module is: a callable with an explicit, resettable state beside its parameters."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.networks.replay import replay_rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StatefulModuleOutput:
    """What a module returns for a batch of `B` inputs."""

    next_state: Any
    """The module's state after this step, of the structure of the state it was called with."""
    output: Any
    """The result, any pytree with leading axis `B`."""
    regularization_loss: jax.Array = field(default_factory=lambda: jnp.zeros(()))
    """Added to the training loss after averaging: a scalar or float32 `[B]`. An entropy bonus enters here,
    negated."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Numbers to log, scalars or `[B]`, perhaps nested; averaged over the data."""
    rollout_extras: Any = ()
    """What must be kept from the rollout to repeat this call in the loss (sampled actions, noise) or to
    update statistics; any pytree with leading axis `B`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PPONetworkOutput:
    """The output of a whole actor-critic network for a batch of `B` observations."""

    actions: Any
    """Actions for the environment, a pytree with leading axis `B`."""
    loglikelihoods: Any
    """Log-likelihood of each action, float32 `[B]`: one, or a pytree with one leaf an agent."""
    value_estimates: Any
    """Expected discounted return, float32 `[B]`: one, or a pytree of the structure of the rewards."""


class SamplerOutput(NamedTuple):
    """The output of a module that draws actions."""

    action: jax.Array
    """The action, leading axis `B`."""
    loglikelihood: jax.Array
    """Its log-likelihood under the distribution it was drawn from, float32 `[B]`."""


class StatefulModule(nnx.Module):
    """Base class of network modules.

    A module has two kinds of state. Its `nnx` variables (parameters, statistics, random streams) live as long
    as the run. Its *module state* (the carry of a recurrent layer) is passed in and returned, one row per
    environment, and starts again with each episode. A module without carry keeps the defaults below; its
    state is `()`.
    """

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Process a batch.

        Args:
            module_state: The state from `initialize_state` or from the previous call.
            obs: The input, any pytree with leading axis `B`.
            rollout_extras: None while acting. In the loss, the extras that this module returned for the same
                input when it acted: it must then repeat that step, and draw nothing.
        """
        raise NotImplementedError

    def initialize_state(self, batch_size: int) -> Any:
        """A fresh state with leading axis `batch_size`; `()` for a module without carry."""
        del batch_size
        return ()

    def reset_state(self, prev_state: Any) -> Any:
        """The state at the start of the next episode.

        Args:
            prev_state: The state of one environment, without the batch axis (callers `vmap`), at the
                episode's end.

        Returns:
            A state of the same structure, for instance zeros; random keys in it are kept or split, never made
            anew.
        """
        return prev_state

    def replay(self, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array) -> StatefulModuleOutput:
        """Repeat a rollout in the loss: what calling row after row would give, carries reset where an episode ended.

        A module without carry is called once on all rows. Containers hand this on to each of their modules, so that
        only those with a carry go through time; a class of your own that overrides `__call__` is replayed as a whole.

        Args:
            module_state: The state before the first row, leading axis `B`.
            obs: Inputs, leading axes `[T, B]`.
            rollout_extras: What the module returned when it acted, leading axes `[T, B]`.
            done: Whether an episode ended with the row, bool `[T, B]`.

        Returns:
            Leaves `[T, B, ...]`, `regularization_loss` `[T, B]`; `next_state` is the one after the last row.
        """
        return replay_rows(self, module_state, obs, rollout_extras, done)

    def update_statistics(self, rollout_extras: Any) -> None:
        """Take note of a finished rollout, after the update that it served.

        Args:
            rollout_extras: The extras of all its steps, with leading axes `[T, B]`.
        """
        del rollout_extras


def extras_for(rollout_extras: Any, key: int | str) -> Any:
    """The part of a container's extras that belongs to one of its children; None while acting."""
    return None if rollout_extras is None else rollout_extras[key]
