"""Vector environments for tests: how they are built, how they are stepped, and how two of them are compared."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode

MODES = ("NextStep", "SameStep", "Disabled")
"""The values of Gymnasium's `AutoresetMode`."""

LIMITS = (5, 7, 11)
"""Steps of an episode, of each environment: they end at different steps, so that resets are pending in some alone."""

Make = Callable[[], Any]


def cartpole(limit: int) -> Make:
    """Makes CartPole with episodes of `limit` steps."""
    return lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)


def pendulum(limit: int) -> Make:
    """Makes Pendulum with episodes of `limit` steps."""
    return lambda: gymnasium.make("Pendulum-v1", max_episode_steps=limit)


def wrapped(make: Make) -> Make:
    """Nine stock wrappers around an environment, two of them with lambdas."""

    def build() -> Any:
        env = wrappers.RecordEpisodeStatistics(make())
        if isinstance(env.action_space, gymnasium.spaces.Box):
            env = wrappers.ClipAction(env)
        else:
            env = wrappers.TransformAction(env, lambda action: action, env.action_space)
        env = wrappers.StickyAction(env, 0.2)
        env = wrappers.TimeAwareObservation(env)
        env = wrappers.NormalizeObservation(env)
        env = wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
        env = wrappers.FrameStackObservation(env, 2)
        env = wrappers.NormalizeReward(env, gamma=0.9)
        return wrappers.TransformReward(env, lambda reward: max(float(reward), -5.0))

    return build


def exact(value: Any) -> Any:
    """Something that `==` compares bit by bit; durations are left out."""
    if isinstance(value, dict):
        return {name: exact(part) for name, part in value.items() if name not in ("t", "_t")}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [exact(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, str(value.dtype), value.shape, value.tobytes()
    return type(value).__name__, value.hex() if isinstance(value, float) else value


def steps(envs: Any, count: int, seed: int) -> list[Any]:
    """What happens on `count` steps of drawn actions; environments that do not reset themselves are reset by mask."""
    actions, rows = np.random.default_rng(seed), []
    for _ in range(count):
        row = envs.step(drawn(envs.action_space, actions))
        rows.append(exact(row))
        ended = np.logical_or(row[2], row[3])
        if ended.any() and envs.unwrapped.autoreset_mode == AutoresetMode.DISABLED:
            rows.append(exact(envs.reset(options={"reset_mask": ended})))
    return rows


def drawn(space: Any, generator: np.random.Generator) -> Any:
    """An action of a batched space."""
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return generator.integers(space.nvec)
    return generator.uniform(np.maximum(space.low, -3), np.minimum(space.high, 3)).astype(space.dtype)


def advanced(envs: Any, count: int, seed: int = 11) -> Any:
    """The environments after a reset and some steps."""
    envs.reset(seed=seed)
    steps(envs, count, seed=seed + 1)
    return envs


def limits(make: Callable[[int], Make], within: Sequence[int] = LIMITS) -> list[Make]:
    """A factory an environment, with episodes of different lengths."""
    return [make(limit) for limit in within]


def step_at(envs: Any, number: int) -> list[Any]:
    """The step of that number, whose action depends on the number alone."""
    return steps(envs, 1, seed=1000 + number)
