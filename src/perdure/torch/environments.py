"""Gymnasium's environments for the trainer: built, checked, and stepped alike in every autoreset mode."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, VectorEnv

from perdure import UsageError
from perdure.gym import make_vec
from perdure.torch.actions import Actions, Choices, actions_of
from perdure.torch.config import PPOConfig

MASK = "action_mask"
"""The key of `info` under which environments tell which actions are legal."""

_MODES = {
    "same-step": AutoresetMode.SAME_STEP,
    "next-step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}

Stepped = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[int, np.ndarray], dict[str, Any]]
"""What a step brought, leading axis `n_envs`: the observation that the policy sees next (perhaps the environments' own
buffer), reward, terminated, truncated; the last observations of truncated episodes of which the next one has begun, by
environment; and the `info` in which the masks belong to the observation."""

Factory = Callable[[], gymnasium.Env[Any, Any]]
"""Makes one environment."""


def factory_of(env_id: str, config: PPOConfig) -> Factory:
    """How to make one environment by its id, with the wrappers that the configuration names.

    Raises:
        UsageError: there is no such environment.
    """

    def make() -> gymnasium.Env[Any, Any]:
        settings = {"frameskip": 1} if config.wrappers == "atari" else {}
        try:
            env = gymnasium.make(env_id, disable_env_checker=True, **settings)
        except (gymnasium.error.Error, ImportError) as error:
            raise UsageError(f"environment {env_id!r} cannot be made: {error}") from error
        return _wrapped(env, config)

    return make


def _wrapped(env: gymnasium.Env[Any, Any], config: PPOConfig) -> gymnasium.Env[Any, Any]:
    if config.wrappers == "atari":
        env = wrappers.ClipReward(wrappers.AtariPreprocessing(env, terminal_on_life_loss=True), -1.0, 1.0)
        return wrappers.FrameStackObservation(env, 4)
    if config.wrappers == "normalize":
        return wrappers.NormalizeReward(wrappers.NormalizeObservation(env), gamma=config.gamma)
    return env


def vector_of(factory: Factory, config: PPOConfig) -> VectorEnv[Any, Any, Any]:
    """So many environments as the configuration says, side by side; their observations are overwritten by each step."""
    factories, mode = [factory] * config.n_envs, _MODES[config.autoreset]
    return make_vec(factories, mode=config.vectorization, autoreset_mode=mode, copy=False)


def autoreset_mode(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """When the environments begin the next episode; by Gymnasium's default, in the next step."""
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


def check_environments(envs: VectorEnv[Any, Any, Any], config: PPOConfig) -> None:
    """Refuses environments that the trainer cannot train in.

    Raises:
        UsageError: another number than the configuration's, or spaces that it does not know.
    """
    if envs.num_envs != config.n_envs:
        raise UsageError(f"{envs.num_envs} environments, but PPOConfig.n_envs={config.n_envs}. Make them agree.")
    space = envs.single_observation_space
    if not isinstance(space, gymnasium.spaces.Box):
        raise UsageError(
            f"observation space {space}: the networks see a Box. Wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, or make one Box of it."
        )
    if is_image(space) and min(space.shape[1:]) < 36:
        raise UsageError(f"observation space {space}: images are (channels, height, width), of at least 36 × 36.")
    actions_of(envs.single_action_space)


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether observations are images of bytes, channels first."""
    return isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def step(envs: VectorEnv[Any, Any, Any], actions: np.ndarray, mode: AutoresetMode) -> Stepped:
    """One step of all environments; those without autoreset are reset here, in the same step."""
    observation, reward, terminated, truncated, info = envs.step(actions)
    if mode is AutoresetMode.SAME_STEP:
        final = _final(info["final_obs"], terminated, truncated) if "final_obs" in info else {}
        return observation, reward, terminated, truncated, final, info
    done = terminated | truncated
    if mode is AutoresetMode.NEXT_STEP or not done.any():
        return observation, reward, terminated, truncated, {}, info
    final = _final(observation.copy(), terminated, truncated)
    observation, begun = envs.reset(options={"reset_mask": done})
    return observation, reward, terminated, truncated, final, _merged(info, begun, done)


def _final(observations: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> dict[int, np.ndarray]:
    return {int(index): np.asarray(observations[index]) for index in np.flatnonzero(truncated & ~terminated)}


def _merged(info: dict[str, Any], begun: dict[str, Any], done: np.ndarray) -> dict[str, Any]:
    """The masks of actions, after some environments began anew: the only thing in `info` that is looked at."""
    if MASK not in info and MASK not in begun:
        return info
    masks = [begun if done[index] else info for index in range(len(done))]
    rows = [source[MASK][index] for index, source in enumerate(masks)]
    given = [bool(source.get(f"_{MASK}", np.ones(len(done), bool))[index]) for index, source in enumerate(masks)]
    return {**info, MASK: np.stack(rows), f"_{MASK}": np.array(given)}


def masks_for(actions: Actions, info: dict[str, Any], n_envs: int) -> np.ndarray:
    """Which actions are legal next, by what a reset or a step told: bool, shape (n_envs, n_outputs).

    Raises:
        UsageError: the actions cannot be masked; a mask is missing, of another size, or forbids everything.
    """
    if not isinstance(actions, Choices):
        raise UsageError(f"info['{MASK}']: continuous actions cannot be masked. Set mask_actions=False.")
    return masks_in(info, n_envs, actions.sizes)


def masks_in(info: dict[str, Any], n_envs: int, sizes: Sequence[int]) -> np.ndarray:
    """Which actions are legal next: bool, shape (n_envs, sum(sizes)).

    Args:
        info: of a reset or a step.
        n_envs: how many environments there are.
        sizes: among how many possibilities each choice is.

    Raises:
        UsageError: a mask is missing, of another size, or forbids everything.
    """
    given = info.get(f"_{MASK}")
    if MASK not in info or (given is not None and not np.all(given)):
        missing = list(range(n_envs)) if given is None else np.flatnonzero(~np.asarray(given)).tolist()
        raise UsageError(
            f"info['{MASK}']: environment {missing[0]} gave none, but did so at its first reset. Give one at each "
            "reset and step, or set mask_actions=False."
        )
    masks = info[MASK]
    masks = np.stack(list(masks)) if masks.dtype == object else masks
    if masks.shape != (n_envs, sum(sizes)):
        raise UsageError(f"info['{MASK}']: shape {masks.shape}, but the actions need {(n_envs, sum(sizes))}.")
    masks = masks.astype(bool)
    legal = np.add.reduceat(masks, np.cumsum([0, *sizes[:-1]]), axis=1)
    if not legal.all():
        index = int(np.flatnonzero(~legal.all(axis=1))[0])
        raise UsageError(
            f"info['{MASK}']: environment {index} forbids every action: {masks[index].astype(int).tolist()}."
        )
    return masks
