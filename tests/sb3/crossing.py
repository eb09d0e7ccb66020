"""Models of every algorithm of Stable-Baselines3 with every combination of what a training may switch on.

The switches: `gsde` (state-dependent exploration), `normalized` (VecNormalize), `linear` (schedules that fall to
nothing at the total) and `apart` (each environment in a process of its own).
"""

from collections.abc import Callable, Set
from typing import Any

import numpy as np
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from tests.conftest import load_beside

trainings = load_beside("sb3/trainings")
falling, fresh = trainings.falling, trainings.fresh

ON_POLICY: dict[str, Any] = {**trainings.ON_POLICY, "n_steps": 16}
OFF_POLICY: dict[str, Any] = {**trainings.OFF_POLICY, "buffer_size": 200}
"""Full, and written over, before the last stop."""


def ppo(on: Set[str]) -> BaseAlgorithm:
    """Clipping falls with the learning rate."""
    falls = {"learning_rate": falling(1e-2, 0.0), "clip_range": falling(0.3, 0.05)} if "linear" in on else {}
    options = fresh(ON_POLICY, batch_size=16, n_epochs=2, **falls, **explores(on))
    return PPO("MlpPolicy", envs(on, any_actions="gsde" not in on), **options)


def a2c(on: Set[str]) -> BaseAlgorithm:
    """One update a rollout."""
    options = fresh(ON_POLICY, **rate(on, 7e-3), **explores(on))
    return A2C("MlpPolicy", envs(on, any_actions="gsde" not in on), **options)


def sac(on: Set[str]) -> BaseAlgorithm:
    """A coefficient of the entropy that is learned."""
    return SAC("MlpPolicy", envs(on), **fresh(OFF_POLICY, **rate(on, 3e-3), **explores(on)))


def dqn(on: Set[str]) -> BaseAlgorithm:
    """Exploration that falls until the end; a target network that lags behind."""
    options = fresh(OFF_POLICY, exploration_fraction=1.0, target_update_interval=150, **rate(on, 1e-2))
    return DQN("MlpPolicy", envs(on, any_actions=True), **options)


def td3(on: Set[str]) -> BaseAlgorithm:
    """Noise with a memory, updates of the actor at every third."""
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.2))
    options = fresh(OFF_POLICY, action_noise=noise, policy_delay=3, **rate(on, 3e-3))
    return TD3("MlpPolicy", envs(on), **options)


def ddpg(on: Set[str]) -> BaseAlgorithm:
    """Noise without a memory."""
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
    return DDPG("MlpPolicy", envs(on), **fresh(OFF_POLICY, action_noise=noise, **rate(on, 3e-3)))


def rate(on: Set[str], highest: float) -> dict[str, Any]:
    """The learning rate, if it is to fall."""
    return {"learning_rate": falling(highest, 0.0)} if "linear" in on else {}


def explores(on: Set[str]) -> dict[str, Any]:
    """Noise that depends on the state, drawn within rollouts too."""
    return {"use_sde": True, "sde_sample_freq": 5} if "gsde" in on else {}


def envs(on: Set[str], *, any_actions: bool = False) -> VecEnv:
    """Two environments; noise of any kind needs actions that are numbers."""
    made = (trainings.cartpole if any_actions else trainings.pendulum)(2, apart="apart" in on)
    return VecNormalize(made, gamma=0.9) if "normalized" in on else made


MAKERS: dict[str, tuple[Callable[[Set[str]], BaseAlgorithm], int, int]] = {
    "ppo": (ppo, 800, 9),
    "a2c": (a2c, 800, 9),
    "sac": (sac, 800, 37),
    "dqn": (dqn, 800, 37),
    "td3": (td3, 800, 37),
    "ddpg": (ddpg, 800, 37),
}
"""What makes the model, the total of steps, and the last boundary after which enough steps follow."""
