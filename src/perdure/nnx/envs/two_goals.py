"""A point that may go to either of two goals: observations, and rewards, are dicts."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.environment import ActionSpec, EnvState
from perdure.nnx.envs.endings import check_positive, describe, ending


@dataclass(frozen=True)
class TwoGoals:
    """A point in the square from -1 to 1 is paid for reaching a goal, and pays for how hard it moves.

    An observation is `{"position": float32 [2], "goals": float32 [4]}`, both goals one after the other. The reward is
    `{"reach": 1 where a goal was reached, "effort": minus the mean square of the action}`, float32 each, for a critic
    with a value head each. A goal that was reached is drawn anew from the key in the state. Leaving the square ends the
    episode.

    Raises:
        ValueError: If a number is out of range.
    """

    speed: float = 0.2
    """Distance that an action of 1 moves, along each axis."""
    goal_radius: float = 0.25
    """Distance at which a goal counts as reached."""
    episode_length: int | None = None
    """Steps after which an episode is truncated, or None."""

    def __post_init__(self) -> None:
        """Check every field."""
        check_positive(self, "speed", "goal_radius", "episode_length")

    @property
    def obs_size(self) -> dict[str, int]:
        """Numbers in each part of an observation."""
        return {"position": 2, "goals": 4}

    @property
    def action(self) -> ActionSpec:
        """Two continuous components."""
        return ActionSpec("continuous", 2)

    def reset(self, key: jax.Array, /) -> EnvState:
        """Goals anywhere in the square, the point in its inner half."""
        key, goal_key, start_key = jax.random.split(key, 3)
        position = jax.random.uniform(start_key, (2,), minval=-0.5, maxval=0.5)
        reward = {"reach": jnp.zeros(()), "effort": jnp.zeros(())}
        return self._state(key, position, _goals(goal_key), jnp.zeros((), jnp.int32), reward)

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        """The point after a move by `action`, float32 `[2]`."""
        key, goal_key = jax.random.split(state.data["key"])
        effort = jnp.clip(action, -1.0, 1.0)
        position = state.data["position"] + self.speed * effort
        distances = jnp.linalg.norm(state.data["goals"] - position, axis=-1)
        reached = distances < self.goal_radius
        goals = jnp.where(reached[:, None], _goals(goal_key), state.data["goals"])
        reward = {"reach": reached.any().astype(jnp.float32), "effort": -jnp.mean(jnp.square(effort))}
        return self._state(key, position, goals, state.data["time"] + 1, reward)

    def _state(
        self, key: jax.Array, position: jax.Array, goals: jax.Array, time: jax.Array, reward: dict[str, jax.Array]
    ) -> EnvState:
        done, info = ending(jnp.any(jnp.abs(position) > 1.0), time, self.episode_length)
        return EnvState(
            data={"key": key, "position": position, "goals": goals, "time": time},
            obs={"position": position, "goals": goals.reshape(-1)},
            reward=reward,
            done=done,
            info=info,
        )

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged: sections `env` and `interface`."""
        return describe(self, obs_size=self.obs_size, rewards=("effort", "reach"), action=vars(self.action))


def _goals(key: jax.Array) -> jax.Array:
    """Two goals, float32 `[2, 2]`."""
    return jax.random.uniform(key, (2, 2), minval=-1.0, maxval=1.0)
