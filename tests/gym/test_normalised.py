"""Environments as a policy's run saw them: the stock wrapper gives way to the policy's statistics, where it stands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402

import perdure  # noqa: E402
from perdure.gym import Normalised, as_trained, make_vec  # noqa: E402

pytestmark = pytest.mark.usefixtures("global_generators")


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def policy_of(env: Any, path: Path) -> perdure.Policy:
    with perdure.Run(path, policy=["weights"]) as run:
        run.restore(weights=np.ones(3), env=env)
        env.reset(seed=1)
        env.action_space.seed(1)
        for _ in range(7):
            env.step(env.action_space.sample())
        return perdure.Policy(run.export_policy(weights=np.ones(3)))


def test_a_wrapper_amid_others_is_replaced_and_the_others_stay(tmp_path: Path):
    policy = policy_of(wrappers.FrameStackObservation(wrappers.NormalizeObservation(cartpole()), 2), tmp_path / "run")
    fresh = wrappers.FrameStackObservation(wrappers.NormalizeObservation(cartpole()), 2)
    env = as_trained(fresh, policy)

    assert env is fresh
    assert isinstance(fresh.env, Normalised)
    policy.check(env=env)
    raw, _ = cartpole().reset(seed=5)
    observation, _ = env.reset(seed=5)
    assert policy.normaliser is not None
    assert observation[-1].tobytes() == policy.normaliser(raw).tobytes()
    before = policy.normaliser(raw).tobytes()
    for _ in range(5):
        env.step(0)
    assert policy.normaliser(raw).tobytes() == before


def test_without_a_wrapper_it_comes_around_all(tmp_path: Path):
    policy = policy_of(wrappers.NormalizeObservation(cartpole()), tmp_path / "run")
    env = as_trained(cartpole(), policy)

    assert isinstance(env, Normalised)
    policy.check(env=env)
    with pytest.raises(perdure.PolicyMismatchError, match=r"environment\.observation_space"):
        policy.check(env=cartpole())


def test_policies_of_environments_that_do_not_normalise_leave_them_alone(tmp_path: Path):
    policy, env = policy_of(cartpole(), tmp_path / "run"), cartpole()

    assert as_trained(env, policy) is env


def test_statistics_that_are_not_in_the_policy_are_missed(tmp_path: Path):
    envs = make_vec([lambda: wrappers.NormalizeObservation(cartpole())] * 2)
    policy = policy_of(envs, tmp_path / "run")

    with pytest.raises(
        perdure.UsageError, match="whose running statistics are not in the policy: each environment of a"
    ):
        as_trained(cartpole(), policy)


def test_images_of_stable_baselines_have_the_bounds_of_its_clipping(tmp_path: Path):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

    class Image(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.np_random.integers(0, 255, (36, 36, 3), np.uint8), {}

        def step(self, action: Any) -> Any:
            return self.np_random.integers(0, 255, (36, 36, 3), np.uint8), 0.0, False, False, {}

    envs = vec_env.VecNormalize(vec_env.DummyVecEnv([Image] * 2), clip_obs=2.0)
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), envs=envs)
        envs.reset()
        policy = perdure.Policy(run.export_policy(weights=np.ones(3)))
    env = as_trained(Image(), policy)
    observation, _ = env.reset(seed=1)

    assert env.observation_space == envs.observation_space
    assert (observation.dtype, np.abs(observation).max() <= 2) == (np.float32, True)
    policy.check(env=env)
