"""gymnax environments behind the environment protocol; the one place that imports gymnax."""

import math
from importlib.metadata import version
from typing import Any

import gymnax
import jax
import jax.numpy as jnp

from perdure.nnx.environment import ActionSpec, EnvState
from perdure.nnx.trees import strong


class GymnaxEnvironment:
    """A gymnax environment without gymnax's automatic reset.

    The key that its dynamics need is kept in the state, and split once a step. An episode that reaches
    `max_steps_in_episode` is truncated (`info["truncation"]`), unless the same step also terminated it.
    Continuous actions in [-1, 1] are stretched to the environment's bounds.

    Two environments of equal id and parameters are equal, so that compiled functions are shared between them.

    Attributes:
        env_id: gymnax's name, for instance `CartPole-v1`.
        params: The parameters that were changed from gymnax's defaults, by name.
        obs_shape: Shape of an observation.
        action: The `ActionSpec`.
    """

    def __init__(self, env_id: str, **params: float) -> None:
        """Look the environment up and change the given parameters.

        Raises:
            ValueError: If gymnax has no such environment or parameter, or its spaces are not supported.
        """
        self.env_id = env_id
        self.params = dict(sorted(params.items()))
        self._env, defaults = _make(env_id)
        self._env_params = _replace(env_id, defaults, self.params)
        self.obs_shape = _observation_shape(env_id, self._env.observation_space(self._env_params))
        self._action_space = self._env.action_space(self._env_params)
        self.action = _action_spec(env_id, self._action_space)

    @property
    def obs_size(self) -> int:
        """Numbers in an observation."""
        return math.prod(self.obs_shape)

    def reset(self, key: jax.Array, /) -> EnvState:
        """The first state of an episode."""
        reset_key, step_key = jax.random.split(key)
        obs, inner = self._env.reset_env(reset_key, self._env_params)
        return self._state(step_key, inner, obs, jnp.zeros(()), terminated=jnp.zeros((), bool), truncated=None)

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        """The state after `action`."""
        next_key, step_key = jax.random.split(state.data["key"])
        inner = state.data["state"]
        obs, inner, reward, terminated, _ = self._env.step_env(
            step_key, inner, self._to_native(action), self._env_params
        )
        truncated = self._env.is_truncated(inner, self._env_params)
        return self._state(next_key, inner, obs, reward, terminated=terminated, truncated=truncated)

    def _state(
        self,
        key: jax.Array,
        inner: Any,
        obs: jax.Array,
        reward: jax.Array,
        *,
        terminated: jax.Array,
        truncated: jax.Array | None,
    ) -> EnvState:
        ended = jnp.asarray(terminated).astype(bool).reshape(())
        cut = jnp.zeros((), bool) if truncated is None else jnp.asarray(truncated).astype(bool).reshape(())
        state = EnvState(
            data={"key": key, "state": inner},
            obs=jnp.asarray(obs).astype(jnp.float32).reshape(self.obs_shape),
            reward=jnp.asarray(reward).astype(jnp.float32).reshape(()),
            done=ended | cut,
            info={"truncation": cut & ~ended},
        )
        return strong(state)

    def _to_native(self, action: jax.Array) -> jax.Array:
        if self.action.kind == "discrete":
            return action
        low = jnp.broadcast_to(jnp.asarray(self._action_space.low, jnp.float32), action.shape)
        high = jnp.broadcast_to(jnp.asarray(self._action_space.high, jnp.float32), action.shape)
        native = low + (jnp.clip(action, -1.0, 1.0) + 1.0) * 0.5 * (high - low)
        return native.reshape(self._action_space.shape)

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged: sections `env` (dynamics) and `interface` (spaces)."""
        return {
            "env": {"env_id": self.env_id, "gymnax": version("gymnax"), "params": vars(self._env_params)},
            "interface": {"obs_shape": self.obs_shape, "action": vars(self.action)},
        }

    def _identity(self) -> tuple[Any, ...]:
        return (self.env_id, *self.params.items())

    def __eq__(self, other: object) -> bool:
        """Whether the other is the same environment with the same parameters."""
        return isinstance(other, GymnaxEnvironment) and self._identity() == other._identity()

    def __hash__(self) -> int:
        """A hash of id and parameters."""
        return hash(self._identity())

    def __repr__(self) -> str:
        """The call that makes it."""
        changed = "".join(f", {name}={value!r}" for name, value in self.params.items())
        return f"GymnaxEnvironment({self.env_id!r}{changed})"


def _make(env_id: str) -> tuple[Any, Any]:
    known = list(gymnax.registered_envs)
    if env_id not in known:
        raise ValueError(f"gymnax has no environment {env_id!r}. It has: {', '.join(sorted(known))}.")
    return gymnax.make(env_id)


def _replace(env_id: str, defaults: Any, params: dict[str, float]) -> Any:
    unknown = [name for name in params if not hasattr(defaults, name)]
    if unknown:
        known = ", ".join(sorted(vars(defaults)))
        raise ValueError(f"{env_id} has no parameter {', '.join(unknown)}. It has: {known}.")
    return defaults.replace(**params)


def _observation_shape(env_id: str, space: Any) -> tuple[int, ...]:
    shape = getattr(space, "shape", None)
    if shape is None or hasattr(space, "spaces"):
        raise ValueError(f"{env_id}: observation space {space!r} is not one array, which is all that is supported.")
    return tuple(int(n) for n in shape)


def _action_spec(env_id: str, space: Any) -> ActionSpec:
    if hasattr(space, "n"):
        return ActionSpec("discrete", int(space.n))
    if hasattr(space, "low") and hasattr(space, "high"):
        return ActionSpec("continuous", math.prod(space.shape))
    raise ValueError(f"{env_id}: action space {space!r} is neither discrete nor a box, which is all that is supported.")
