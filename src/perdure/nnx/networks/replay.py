"""Repeating a rollout with the current parameters: all rows at once where nothing is carried, else row by row."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp

from perdure.nnx.trees import flatten_time, select, unflatten_time

if TYPE_CHECKING:
    from perdure.nnx.networks.types import StatefulModuleOutput


class Module(Protocol):
    """The part of `StatefulModule` that is needed here."""

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> "StatefulModuleOutput":
        """Process a batch."""
        ...

    def reset_state(self, prev_state: Any) -> Any:
        """The state at the start of the next episode."""
        ...


def replay_rows(
    module: Module, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array
) -> "StatefulModuleOutput":
    """What calling the module on one row of `[T, B]` after the other gives; leaves `[T, B, ...]`.

    A module without carry is called once on all rows: a scan over time costs several times as much.
    """
    if jax.tree.leaves(module_state):
        return _in_time(module, module_state, obs, rollout_extras, done)
    result = module(module_state, *flatten_time((obs, rollout_extras)))
    return unflatten_time(jax.tree.map(_for_each(done.size), result), done.shape[0])


def _in_time(
    module: Module, module_state: Any, obs: Any, rollout_extras: Any, done: jax.Array
) -> "StatefulModuleOutput":
    each = _for_each(done.shape[1])

    def step(carry: Any, row: tuple[Any, Any, jax.Array]) -> tuple[Any, "StatefulModuleOutput"]:
        obs, extras, done = row
        result = module(carry, obs, extras)
        state = reset_carries(module, done, result.next_state)
        return state, replace(result, next_state=(), regularization_loss=each(result.regularization_loss))

    state, result = jax.lax.scan(step, module_state, (obs, rollout_extras, done))
    return replace(result, next_state=state)


def _for_each(rows: int) -> Callable[[jax.Array], jax.Array]:
    """Turns what a module says once for all rows into one number a row."""
    return lambda leaf: jnp.broadcast_to(leaf, (rows,)) if jnp.ndim(leaf) == 0 else leaf


def reset_carries(module: Module, done: jax.Array, module_state: Any) -> Any:
    """Carries of the next step: fresh where an episode ended; leaves `[B, ...]`, `done` bool `[B]`."""
    if not jax.tree.leaves(module_state):
        return module_state
    return select(done, jax.vmap(module.reset_state)(module_state), module_state)
