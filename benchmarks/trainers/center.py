"""The environment that both trainers train in: a point in the plane is to be moved to the centre. Needs JAX alone."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

BORDER = 2.0
FALLOFF = 0.5


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """A state in the protocol of MuJoCo Playground."""

    data: jax.Array
    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    info: dict[str, Any]
    metrics: dict[str, Any]

    def replace(self, **changes: Any) -> "State":
        """The same state with other parts."""
        return dataclasses.replace(self, **changes)


class Center:
    """Reward is a bell around the centre; the episode ends beyond the border."""

    observation_size = 2
    action_size = 2

    def reset(self, key: jax.Array) -> State:
        """A point within nine tenths of the border."""
        angle, radius = jax.random.uniform(key, (2,))
        direction = jnp.stack([jnp.cos(2 * jnp.pi * angle), jnp.sin(2 * jnp.pi * angle)])
        return self._state(direction * radius * BORDER * 0.9)

    def step(self, state: State, action: jax.Array) -> State:
        """Move by the action."""
        return self._state(state.data + jnp.clip(action, -1.0, 1.0))

    def _state(self, position: jax.Array) -> State:
        square = jnp.square(position).sum()
        done = jnp.where(square > BORDER**2, 1.0, 0.0)
        return State(position, position / 10.0, jnp.exp(-square / (2 * FALLOFF**2)), done, {}, {})
