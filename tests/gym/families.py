"""The families of environments that docs/environments.md lists, each with a factory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from perdure.gym import Recorded

Make = Callable[[], Any]


@dataclass(frozen=True)
class Family:
    """One row of the table."""

    name: str
    make: Make
    weight: str = "fast"
    """In which tests: `fast`, `full` or `slow`."""
    steps: int = 300
    """Compared after each point of capture."""
    points: int = 20
    """Points of capture."""


def _limited(env_id: str, **options: Any) -> Make:
    return lambda: gymnasium.make(env_id, max_episode_steps=90, **options)


def _nine_wrappers() -> Any:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=40)
    env = wrappers.RecordEpisodeStatistics(wrappers.ClipAction(env))
    env = wrappers.StickyAction(wrappers.TimeAwareObservation(env), 0.25)
    env = wrappers.NormalizeObservation(wrappers.DelayObservation(env, 2))
    env = wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
    return wrappers.NormalizeReward(wrappers.FrameStackObservation(env, 3))


def _mujoco(env_id: str) -> Make:
    return lambda: wrappers.NormalizeReward(
        wrappers.NormalizeObservation(gymnasium.make(env_id, max_episode_steps=150))
    )


def _atari(game: str) -> Make:
    def make() -> Any:
        import ale_py

        gymnasium.register_envs(ale_py)
        env = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.25)
        return wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env), 4)

    return make


def _continuous_atari(game: str) -> Make:
    """Actions are angle, strength and fire: the strength of a sticky action is state, where the game has paddles."""

    def make() -> Any:
        import ale_py

        gymnasium.register_envs(ale_py)
        return gymnasium.make(f"ALE/{game}-v5", continuous=True, repeat_action_probability=0.25, obs_type="ram")

    return make


def _minigrid(env_id: str) -> Make:
    def make() -> Any:
        import minigrid  # noqa: F401 - registers its environments

        return gymnasium.make(env_id, max_episode_steps=90)

    return make


def _recorded(env_id: str, **options: Any) -> Make:
    return lambda: wrappers.NormalizeReward(
        wrappers.NormalizeObservation(Recorded(gymnasium.make(env_id, max_episode_steps=90, **options)))
    )


CLASSIC = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
TOYS = ("FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1")
MUJOCO = (
    *("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)
GAMES = ("Breakout", "Pong", "SpaceInvaders")
GRIDS = ("MiniGrid-DoorKey-8x8-v0", "MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-Dynamic-Obstacles-8x8-v0")

FAMILIES = (
    *(Family(env_id, _limited(env_id), "full") for env_id in (*CLASSIC, *TOYS)),
    Family("Pendulum-v1 under nine wrappers", _nine_wrappers, "full"),
    *(Family(env_id, _mujoco(env_id), "full" if env_id == "HalfCheetah-v5" else "slow") for env_id in MUJOCO),
    *(Family(f"ALE/{game}-v5", _atari(game), "full" if game == "Breakout" else "slow", 100) for game in GAMES),
    Family("ALE/Breakout-v5, continuous", _continuous_atari("Breakout"), "full", 100),
    *(Family(env_id, _minigrid(env_id), "full" if env_id == GRIDS[0] else "slow") for env_id in GRIDS),
    Family("LunarLander-v3", _recorded("LunarLander-v3"), "full"),
    Family("BipedalWalker-v3", _recorded("BipedalWalker-v3"), "slow"),
    Family("CarRacing-v3", lambda: Recorded(gymnasium.make("CarRacing-v3", continuous=False)), "slow", 20),
)
