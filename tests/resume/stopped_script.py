"""A training that is stopped by signals: a linear policy by evolution, over every kind of vector environment.

    python -m tests.resume.stopped_script RUN sync|async-fork|async-spawn|async-forkserver|subproc

It prints a word at each phase, so that a test can choose where to strike. All that happens is decided by the state.
"""

import hashlib
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import perdure
import perdure.gym

ITERATIONS, STEPS, ENVS = 30, 40, 2
MUCH = bytes(24 << 20)
"""Digested in one call that is away from Python for about as long as a small compilation."""


def make_env() -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("CartPole-v1")
    env.action_space.seed(0)
    env.observation_space.seed(0)
    return env


def make_subproc_env() -> gymnasium.Env[Any, Any]:
    return perdure.gym.Snapshot(make_env())


def make_vector(kind: str) -> Any:
    if kind == "subproc":
        from stable_baselines3.common.vec_env import SubprocVecEnv

        return SubprocVecEnv([make_subproc_env] * ENVS, start_method="spawn")
    if kind == "sync":
        return perdure.gym.make_vec([make_env] * ENVS)
    context: Any = kind.removeprefix("async-")
    return perdure.gym.make_vec([make_env] * ENVS, mode="async", context=context)


def reset(envs: Any, kind: str) -> np.ndarray:
    if kind == "subproc":
        envs.action_space.seed(0)
        envs.observation_space.seed(0)
        envs.seed(0)
        return envs.reset()
    perdure.gym.seed_spaces(envs, 0)
    return envs.reset(seed=0)[0]


def step(envs: Any, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    observation, reward, *_ = envs.step(actions)
    return observation, reward


def say(phase: str) -> None:
    print(phase, flush=True)


def main(directory: str, kind: str) -> None:
    say("start")
    random.seed(0)
    np.random.seed(0)
    envs = make_vector(kind)
    if (torch := sys.modules.get("torch")) is not None:  # Stable-Baselines3 brings it along
        torch.manual_seed(0)
    rng = np.random.default_rng(0)
    observation = reset(envs, kind)
    run = perdure.Run(directory, horizon=ITERATIONS, every=perdure.Every(updates=5), keep=None)
    with run:
        s = run.restore(envs=envs, rng=rng, weights=np.zeros(4), observation=observation)
        weights, observation = s.weights, s.observation
        say("restored")
        while not run.is_finished:
            say("rollout")
            noise, total = rng.normal(size=4), 0.0
            for _ in range(STEPS):
                observation, reward = step(envs, (observation @ (weights + noise) > 0).astype(np.int64))
                total += float(reward.sum())
            say("update")
            for _ in range(2000):
                weights = weights + 1e-7 * total * noise
            say("compiled")
            hashlib.sha256(MUCH).digest()
            if run.boundary_number % 3 == 0:
                say("evaluation")
                evaluate(weights, partial(int, run.boundary_number))
            say("boundary")
            run.boundary(
                env_steps=run.env_steps + 1, weights=weights, observation=observation, metrics={"total": total}
            )
        run.finish()
    envs.close()


def evaluate(weights: np.ndarray, seed: Callable[[], int]) -> None:
    env = make_env()
    observation, _ = env.reset(seed=seed())
    for _ in range(100):
        observation, _, terminated, _, _ = env.step(int(observation @ weights > 0))
        if terminated:
            break
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
