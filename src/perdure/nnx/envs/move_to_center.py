"""A point in the plane that is paid for being at the centre: the smallest task with continuous actions."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.environment import ActionSpec, EnvState
from perdure.nnx.envs.endings import check_positive, describe, ending

_START = 0.9
"""Episodes start within this part of the border's radius."""
_OBS_SCALE = 0.1


@dataclass(frozen=True)
class MoveToCenter:
    """An action is the next displacement, each component at most 1; the episode ends beyond a circle.

    The reward is `exp(-d**2 / (2 * reward_falloff**2))` at a distance of `d` from the centre. Observations are float32
    `[2]`, a tenth of the position. With the defaults, the task is the one of the same name that nnx-ppo's users know.

    Raises:
        ValueError: If a number is out of range.
    """

    reward_falloff: float = 0.5
    """Distance at which the reward has fallen to `exp(-1/2)`."""
    border_radius: float = 2.0
    """Distance beyond which the episode ends."""
    noise: float = 0.0
    """Standard deviation of a random displacement in each step; 0 draws nothing."""
    episode_length: int | None = None
    """Steps after which an episode is truncated, or None."""

    def __post_init__(self) -> None:
        """Check every field."""
        check_positive(self, "reward_falloff", "border_radius", "episode_length")
        if not 0.0 <= self.noise < float("inf"):
            raise ValueError(f"MoveToCenter.noise must be finite and not negative, got {self.noise!r}.")

    @property
    def obs_size(self) -> int:
        """Numbers in an observation."""
        return 2

    @property
    def action(self) -> ActionSpec:
        """Two continuous components."""
        return ActionSpec("continuous", 2)

    def reset(self, key: jax.Array, /) -> EnvState:
        """A point drawn within the border: angle and distance from the centre are uniform."""
        key, start_key = jax.random.split(key)
        turn, distance = jax.random.uniform(start_key, (2,))
        angle, radius = 2 * jnp.pi * turn, _START * self.border_radius * distance
        position = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return self._state(key, position, jnp.zeros((), jnp.int32))

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        """The point after a displacement by `action`, float32 `[2]`."""
        key = state.data["key"]
        position = state.data["position"] + jnp.clip(action, -1.0, 1.0)
        if self.noise:
            key, push_key = jax.random.split(key)
            position = position + self.noise * jax.random.normal(push_key, (2,))
        return self._state(key, position, state.data["time"] + 1)

    def _state(self, key: jax.Array, position: jax.Array, time: jax.Array) -> EnvState:
        squared = jnp.sum(jnp.square(position))
        done, info = ending(squared > self.border_radius**2, time, self.episode_length)
        return EnvState(
            data={"key": key, "position": position, "time": time},
            obs=_OBS_SCALE * position,
            reward=jnp.exp(-squared / (2 * self.reward_falloff**2)),
            done=done,
            info=info,
        )

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged: sections `env` and `interface`."""
        return describe(self, obs_shape=(self.obs_size,), action=vars(self.action))
