"""Environments whose states are those of brax or MuJoCo Playground, behind the environment protocol."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.environment import ActionSpec, EnvState
from perdure.nnx.trees import strong

TRUNCATION = "truncation"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Native:
    """An environment of another library, without wrappers."""

    env: Any
    """Has `reset(key)`, `step(state, action)` and `action_size`."""
    state_class: Any
    """Class of its states: built from the physics, `obs`, `reward`, `done`, `metrics` and `info`."""
    physics: str
    """Name of the field that holds the physics."""


class PhysicsEnvironment:
    """One environment of brax or MuJoCo Playground, with a limit of steps and without automatic reset.

    The state holds all that the next step depends on: `data["physics"]` is the library's own state of the
    physics, `data["steps"]` counts the steps of the episode (int32 `[]`), and `info` and `metrics` are the
    library's, which may keep keys there. `reward` is float32 `[]`, `done` bool `[]`. An episode of
    `episode_length` steps is truncated (`info["truncation"]`, bool `[]`), unless the same step also terminated it.

    Two environments of the same class and settings are equal, so that compiled functions are shared between them.

    Attributes:
        env_name: The library's name of it.
        episode_length: Steps after which an episode is truncated.
        obs_shape: Shape of an observation, or a dict of shapes where it is a dict of arrays.
        action: The `ActionSpec`: continuous, in [-1, 1], handed on as it is.
    """

    def __init__(
        self, env_name: str, native: Native, *, episode_length: int, settings: Hashable, env_facts: dict[str, Any]
    ) -> None:
        """Take an environment as its library made it.

        Args:
            env_name: The library's name of it.
            native: The environment itself.
            episode_length: Steps after which an episode is truncated.
            settings: What tells it from others of that name.
            env_facts: What a resumed run must find unchanged.

        Raises:
            ValueError: If the limit is not positive, or the library's states say `truncation` themselves.
        """
        if episode_length < 1:
            raise ValueError(f"{env_name}: episode_length: expected at least 1 step, got {episode_length}.")
        self.env_name = env_name
        self.episode_length = episode_length
        self._native = native
        self._settings = settings
        self._env_facts = env_facts
        first = jax.eval_shape(native.env.reset, jax.random.key(0))
        if TRUNCATION in first.info:
            raise ValueError(
                f"{env_name}: expected an environment without a limit of its own, but its info has {TRUNCATION!r}. "
                "Pass it without its episode wrapper; episode_length sets the limit here."
            )
        self.obs_shape: Shape | dict[str, Any] = jax.tree.map(lambda leaf: tuple(leaf.shape), first.obs)
        self._obs_sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(first.obs)]
        self.action = ActionSpec("continuous", int(native.env.action_size))

    @property
    def obs_size(self) -> int:
        """Numbers in an observation, those of all its parts: what a `Flattener` makes of it."""
        return sum(self._obs_sizes)

    def reset(self, key: jax.Array, /) -> EnvState:
        """The first state of an episode."""
        return self._adapted(self._native.env.reset(key), jnp.zeros((), jnp.int32))

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        """The state after `action`, float32 `[action.size]`."""
        after = self._native.env.step(self._as_native(state), action)
        return self._adapted(after, state.data["steps"] + 1)

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged: sections `env` (dynamics) and `interface` (spaces)."""
        return {
            "env": {"env_name": self.env_name, "episode_length": self.episode_length, **self._env_facts},
            "interface": {"obs_shape": self.obs_shape, "action": vars(self.action)},
        }

    def _adapted(self, native: Any, steps: jax.Array) -> EnvState:
        terminated = jnp.asarray(native.done).astype(bool)
        truncated = (steps >= self.episode_length) & ~terminated
        state = EnvState(
            data={"physics": getattr(native, self._native.physics), "steps": steps},
            obs=native.obs,
            reward=jnp.asarray(native.reward).astype(jnp.float32),
            done=terminated | truncated,
            info={**native.info, TRUNCATION: truncated},
            metrics=native.metrics,
        )
        return strong(state)

    def _as_native(self, state: EnvState) -> Any:
        # Mapped, so that every dict is a new one: these libraries write into the dicts of the state they are given.
        own = jax.tree.map(lambda leaf: leaf, state)
        fields = {
            self._native.physics: own.data["physics"],
            "obs": own.obs,
            "reward": own.reward,
            "done": own.done.astype(jnp.float32),
            "metrics": own.metrics,
            "info": {name: value for name, value in own.info.items() if name != TRUNCATION},
        }
        return self._native.state_class(**fields)

    def _identity(self) -> Hashable:
        return (type(self).__name__, self.env_name, self.episode_length, self._settings)

    def __eq__(self, other: object) -> bool:
        """Whether the other is the same environment with the same settings."""
        return isinstance(other, PhysicsEnvironment) and self._identity() == other._identity()

    def __hash__(self) -> int:
        """A hash of name and settings."""
        return hash(self._identity())
