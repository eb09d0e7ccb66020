"""A cue that must be given back after a delay: the smallest task that only a network with memory can solve."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.environment import ActionSpec, EnvState
from perdure.nnx.envs.endings import check_positive, describe, ending


@dataclass(frozen=True)
class RecallCue:
    """A trial shows one of `cues` cues, then nothing for `delay` steps, then asks; the answer is the action there.

    Observations are float32 `[cues + 1]`: the cue one-hot in a trial's first step, 1 in the last entry where the answer
    is asked for, zeros between. The right answer is worth 1, everything else 0. Whoever does not remember is right once
    in `cues` trials. The episode ends with its last trial.

    Raises:
        ValueError: If a number is out of range.
    """

    cues: int = 2
    """Number of cues, and of actions."""
    delay: int = 4
    """Blank steps between the cue and the question, at least 0."""
    trials: int = 1
    """Trials an episode; each draws its cue from the key in the state."""
    episode_length: int | None = None
    """Steps after which an episode is truncated, or None."""

    def __post_init__(self) -> None:
        """Check every field."""
        check_positive(self, "trials", "episode_length")
        if self.cues < 2 or self.delay < 0:
            raise ValueError(
                f"RecallCue needs at least 2 cues and a delay of at least 0, got cues={self.cues!r}, "
                f"delay={self.delay!r}."
            )

    @property
    def obs_size(self) -> int:
        """Numbers in an observation."""
        return self.cues + 1

    @property
    def action(self) -> ActionSpec:
        """One discrete action a cue."""
        return ActionSpec("discrete", self.cues)

    @property
    def _trial_length(self) -> int:
        """Observations of a trial: the cue, the blanks, the question."""
        return self.delay + 2

    def reset(self, key: jax.Array, /) -> EnvState:
        """The first cue."""
        key, cue = self._draw(key)
        return self._state(key, cue, jnp.zeros((), jnp.int32), jnp.zeros(()))

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        """The next observation; `action` is an int32 scalar, and counts where the answer was asked for."""
        time, cue = state.data["time"] + 1, state.data["cue"]
        answered = time % self._trial_length == 0
        reward = (answered & (action == cue)).astype(jnp.float32)
        next_key, next_cue = self._draw(state.data["key"])
        return self._state(
            jnp.where(answered, next_key, state.data["key"]), jnp.where(answered, next_cue, cue), time, reward
        )

    def _draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key, cue_key = jax.random.split(key)
        return key, jax.random.randint(cue_key, (), 0, self.cues, jnp.int32)

    def _state(self, key: jax.Array, cue: jax.Array, time: jax.Array, reward: jax.Array) -> EnvState:
        phase = time % self._trial_length
        shown = jnp.where(phase == 0, jax.nn.one_hot(cue, self.cues), 0.0)
        asked = (phase == self._trial_length - 1).astype(jnp.float32)
        done, info = ending(time >= self.trials * self._trial_length, time, self.episode_length)
        return EnvState(
            data={"key": key, "cue": cue, "time": time},
            obs=jnp.concatenate([shown, asked[None]]),
            reward=reward,
            done=done,
            info=info,
        )

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged: sections `env` and `interface`."""
        return describe(self, obs_shape=(self.obs_size,), action=vars(self.action))
