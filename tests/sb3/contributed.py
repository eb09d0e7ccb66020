"""Tiny trainings with the algorithms of sb3-contrib."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from sb3_contrib.common.wrappers import ActionMasker, TimeFeatureWrapper
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from tests.conftest import load_beside

trainings = load_beside("sb3/trainings")
cartpole, pendulum, envs_of = trainings.cartpole, trainings.pendulum, trainings.envs_of
falling, fresh = trainings.falling, trainings.fresh

ON_POLICY: dict[str, Any] = {**trainings.ON_POLICY, "n_steps": 16, "batch_size": 16}
PPO_OPTIONS: dict[str, Any] = {**ON_POLICY, "n_epochs": 2}
OFF_POLICY: dict[str, Any] = {**trainings.OFF_POLICY, "buffer_size": 200}
"""Full, and written over, before the last stop."""


def remembering(**chosen: Any) -> dict[str, Any]:
    """Options of a recurrent model."""
    return fresh(PPO_OPTIONS, policy_kwargs={"net_arch": [8], "lstm_hidden_size": 8, **chosen})


def recurrent() -> BaseAlgorithm:
    """A memory of the actor's and one of the critic's, linear schedules, normalised."""
    options = {**remembering(), "learning_rate": falling(1e-2, 0.0)}
    return RecurrentPPO("MlpLstmPolicy", VecNormalize(cartpole(2), gamma=0.9), **options)


def recurrent_shared() -> BaseAlgorithm:
    """The critic reads the actor's memory: both states of it have the same numbers in the same place."""
    options = remembering(shared_lstm=True, enable_critic_lstm=False, n_lstm_layers=2)
    return RecurrentPPO("MlpLstmPolicy", pendulum(2), use_sde=True, sde_sample_freq=5, **options)


def recurrent_alone() -> BaseAlgorithm:
    """The critic has no memory: its states are the actor's very objects. Environments in processes of their own."""
    return RecurrentPPO("MlpLstmPolicy", cartpole(2, apart=True), **remembering(enable_critic_lstm=False))


def recurrent_two_parts() -> BaseAlgorithm:
    """Observations of two parts."""
    return RecurrentPPO("MultiInputLstmPolicy", envs_of(trainings.TwoParts, 3), **remembering())


def maskable() -> BaseAlgorithm:
    """Which actions are allowed is drawn anew at each step."""
    envs = envs_of(InvalidActionEnvDiscrete, 2, dim=6, ep_length=17, n_invalid_actions=3)
    for at, one in enumerate(envs.envs):  # they draw their observations from them
        one.action_space.seed(at)
    return MaskablePPO("MlpPolicy", envs, clip_range=falling(0.3, 0.05), **fresh(PPO_OPTIONS))


def maskable_two_parts() -> BaseAlgorithm:
    """Observations of two parts; masks of a function's, which looks at the environment, in a process of its own."""
    return MaskablePPO("MultiInputPolicy", envs_of(masked, 3, apart=True), **fresh(PPO_OPTIONS))


def masked() -> gymnasium.Env:
    return ActionMasker(trainings.TwoParts(), allowed)


def allowed(env: gymnasium.Env) -> np.ndarray:
    """By what the environment's generator will draw next."""
    is_even = int(env.unwrapped.np_random.bit_generator.state["state"]["state"]) % 2 == 0
    return np.array([True, is_even])


def trpo() -> BaseAlgorithm:
    """State-dependent exploration, normalised, linear schedule."""
    envs = VecNormalize(pendulum(2))
    return TRPO("MlpPolicy", envs, learning_rate=falling(1e-2, 0.0), use_sde=True, **fresh(ON_POLICY))


def qrdqn() -> BaseAlgorithm:
    """Exploration that falls until the end; a target network that lags behind."""
    options = fresh(OFF_POLICY, policy_kwargs={"net_arch": [8], "n_quantiles": 5})
    lags = {"exploration_fraction": 1.0, "target_update_interval": 150}
    return QRDQN("MlpPolicy", cartpole(2), learning_rate=falling(1e-2, 0.0), **lags, **options)


def tqc() -> BaseAlgorithm:
    """A coefficient of the entropy that is learned, state-dependent exploration, normalised."""
    options = fresh(OFF_POLICY, policy_kwargs={"net_arch": [8], "n_quantiles": 5})
    return TQC("MlpPolicy", VecNormalize(pendulum(2)), use_sde=True, sde_sample_freq=3, **options)


def tqc_apart() -> BaseAlgorithm:
    """Environments in processes of their own; three-step returns."""
    options = fresh(OFF_POLICY, policy_kwargs={"net_arch": [8], "n_quantiles": 5})
    return TQC("MlpPolicy", pendulum(2, apart=True), learning_rate=falling(3e-3, 0.0), n_steps=3, **options)


def crossq() -> BaseAlgorithm:
    """Batch renormalisation, whose warm-up ends within the training; the time as a feature."""
    options = fresh(OFF_POLICY, policy_kwargs={"net_arch": [8], "renorm_warmup_steps": 60})
    return CrossQ("MlpPolicy", envs_of(timed, 2), policy_delay=3, **options)


def timed() -> gymnasium.Env:
    return TimeFeatureWrapper(gymnasium.make("Pendulum-v1", max_episode_steps=30))


ars = partial(ARS, "MlpPolicy", "CartPole-v1", n_delta=2, seed=5, device="cpu")

CASES: dict[str, tuple[Callable[[], BaseAlgorithm], int, int]] = {
    "recurrent": (recurrent, 800, 9),
    "recurrent-shared": (recurrent_shared, 800, 9),
    "recurrent-alone": (recurrent_alone, 800, 9),
    "recurrent-two-parts": (recurrent_two_parts, 816, 6),
    "maskable": (maskable, 800, 9),
    "maskable-two-parts": (maskable_two_parts, 816, 6),
    "trpo": (trpo, 800, 9),
    "qrdqn": (qrdqn, 800, 37),
    "tqc": (tqc, 800, 37),
    "tqc-apart": (tqc_apart, 800, 37),
    "crossq": (crossq, 800, 37),
}
"""What makes the model, the total of steps, and the last boundary after which enough steps follow."""
