"""Gymnasium vector environments for `train_ppo`; the one place of this family that imports Gymnasium."""

import copy
import math
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from perdure import UsageError
from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.gym import seed_spaces
from perdure.nnx.environment import ActionSpec
from perdure.nnx.host import HostEnvironments, HostStates, HostStep


class GymnasiumVector(HostEnvironments):
    """A Gymnasium vector environment in this process, whose state checkpoints hold to the last bit.

    Discrete actions count from 0; continuous ones in [-1, 1] are stretched to the bounds of the action space.
    Observations and rewards become float32.

    Attributes:
        envs: The vector environment. What steps it beside the training belongs to the training.
        obs_shape: Shape of an observation; a dict of shapes if observations are dicts.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], seed: int | None = None) -> None:
        """Check the vector environment, and remember it as it is: each start begins from there.

        Args:
            envs: A `SyncVectorEnv`, perhaps wrapped, with `AutoresetMode.SAME_STEP`: only that mode shows the last
                observation of an episode, from which a truncated episode is bootstrapped, without a step in which the
                action is ignored.
            seed: Seeds the first episodes, in place of the training's seed.

        Raises:
            UsageError: If the mode is another one, or a space is not supported.
            CaptureError: If the state of the environments cannot be captured exactly; what stands in the way is named.
        """
        _check_mode(envs)
        self.envs = envs
        self.seed = seed
        self.n_envs = envs.num_envs
        self.obs_shape = _observation_shape(envs.single_observation_space)
        self._action_space = envs.single_action_space
        self.action = _action_spec(self._action_space)
        self._pristine = _Memory(envs)

    @property
    def obs_size(self) -> int:
        """Numbers in an observation."""
        shapes = self.obs_shape.values() if isinstance(self.obs_shape, dict) else [self.obs_shape]
        return sum(map(math.prod, shapes))

    def start(self, key: jax.Array) -> HostStates:
        """As they were handed in, and reset: running statistics of wrappers start anew, too."""
        self._pristine.restore(self.envs)
        seed = self.seed if self.seed is not None else int(jax.random.bits(key, dtype=np.uint32)) >> 1
        seed_spaces(self.envs, seed)
        obs, _ = self.envs.reset(seed=seed)
        return HostStates(self.envs, _to_float32(obs))

    def step(self, actions: np.ndarray) -> HostStep:
        """Take a step of all environments."""
        obs, reward, terminated, truncated, info = self.envs.step(self._to_native(actions))
        only_truncated = np.asarray(truncated & ~terminated)
        now = _to_float32(obs)
        return HostStep(
            obs=now,
            reward=np.array(reward, np.float32),
            done=np.asarray(terminated | truncated),
            truncated=only_truncated,
            final_obs=_with_rows(now, info["final_obs"], only_truncated) if only_truncated.any() else now,
        )

    def _to_native(self, actions: np.ndarray) -> np.ndarray:
        space = self._action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            return actions.astype(space.dtype) + space.start
        assert isinstance(space, gymnasium.spaces.Box)  # noqa: S101 - checked when this was made
        share = (np.clip(actions, -1, 1) + 1) * np.float32(0.5)
        low, high = (bound.reshape(-1).astype(np.float32) for bound in (space.low, space.high))
        return (low + share * (high - low)).astype(space.dtype).reshape(self.n_envs, *space.shape)

    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged; what the environments' adapter tells is compared beside it."""
        inside = getattr(self.envs.unwrapped, "envs", None) or [self.envs.unwrapped]
        return {
            "env": {
                "env_id": ", ".join(sorted({_id_of(env.unwrapped) for env in inside})),
                "gymnasium": gymnasium.__version__,
                "inside": sorted({str(env) for env in inside}),
                "around": _wrappers(self.envs),
            },
            "interface": {"obs_shape": self.obs_shape, "action": vars(self.action)},
        }

    def __repr__(self) -> str:
        """What it steps."""
        return f"GymnasiumVector({self.envs})"


class _Memory:
    """The state of live objects at one instant, to go back to."""

    def __init__(self, obj: Any) -> None:
        walk = Walk(Resolver())
        self._tree, self._made = copy.deepcopy(walk.capture(obj, "envs")), walk.made

    def restore(self, obj: Any) -> None:
        walk = Walk(Resolver(), self._made)
        walk.restore(obj, copy.deepcopy(self._tree), "envs")
        for restore_rng in walk.postponed:
            restore_rng()


def _check_mode(envs: VectorEnv[Any, Any, Any]) -> None:
    mode = getattr(envs.unwrapped, "autoreset_mode", envs.metadata.get("autoreset_mode"))
    if mode != AutoresetMode.SAME_STEP:
        raise UsageError(
            f"{envs}: its autoreset mode is {getattr(mode, 'name', mode)}, expected SAME_STEP. Make it with "
            "SyncVectorEnv(..., autoreset_mode=AutoresetMode.SAME_STEP), or with make_vec(..., "
            'vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"}).'
        )


def _id_of(env: Any) -> str:
    return env.spec.id if env.spec is not None else type(env).__qualname__


def _wrappers(envs: Any) -> list[str]:
    names = [type(envs).__name__]
    while isinstance(envs, gymnasium.vector.VectorWrapper):
        envs = envs.env
        names.append(type(envs).__name__)
    return names


def _observation_shape(space: gymnasium.Space[Any]) -> Any:
    if isinstance(space, gymnasium.spaces.Box):
        return space.shape
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _observation_shape(part) for name, part in space.items()}
    raise UsageError(
        f"observation space {space}: expected a Box, or a Dict of them. Wrap the environment in "
        "gymnasium.wrappers.FlattenObservation, which makes one Box of most spaces."
    )


def _action_spec(space: gymnasium.Space[Any]) -> ActionSpec:
    if isinstance(space, gymnasium.spaces.Discrete):
        return ActionSpec("discrete", int(space.n))
    if isinstance(space, gymnasium.spaces.Box) and np.isfinite([*space.low.flat, *space.high.flat]).all():
        return ActionSpec("continuous", math.prod(space.shape))
    raise UsageError(
        f"action space {space}: expected Discrete, or a Box with finite bounds. Wrap the environment in one that takes "
        "such actions (gymnasium.wrappers.TransformAction)."
    )


def _to_float32(obs: Any) -> Any:
    """Copies: an environment may write into the arrays that it returned."""
    return jax.tree.map(lambda part: np.array(part, np.float32), obs)


def _with_rows(obs: Any, rows: Any, mask: np.ndarray) -> Any:
    """A copy of a batch with the rows where `mask` is set taken from an array of single observations."""
    result = jax.tree.map(np.copy, obs)
    for at in np.flatnonzero(mask):
        jax.tree.map(lambda batch, row, at=at: batch.__setitem__(at, row), result, rows[at])
    return result
