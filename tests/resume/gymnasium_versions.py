"""A loop over Gymnasium's environments that runs under each version from 0.29: stopped anywhere, it must be the same.

python gymnasium_versions.py DIRECTORY: prints what it found, as JSON. It needs NumPy, Gymnasium and perdure only.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import perdure

LIMIT = 9
IS_OLD = gymnasium.__version__.startswith("0.")
FRAMES: Any = getattr(gymnasium.wrappers, "FrameStackObservation", None) or getattr(
    gymnasium.wrappers, "FrameStack", None
)


def single(limit: int) -> Any:
    """Six stock wrappers that all versions have."""
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("Pendulum-v1", max_episode_steps=limit))
    env = gymnasium.wrappers.ClipAction(env)
    env = gymnasium.wrappers.TimeAwareObservation(env)
    env = gymnasium.wrappers.NormalizeObservation(env)
    return gymnasium.wrappers.NormalizeReward(FRAMES(env, 2), gamma=0.9)


def several() -> Any:
    """A synchronous vector, and a wrapper around it."""
    envs: Any = gymnasium.vector.SyncVectorEnv([lambda limit=limit: single(limit) for limit in (5, 7, 11)])
    if IS_OLD:
        return gymnasium.wrappers.RecordEpisodeStatistics(envs)
    return gymnasium.wrappers.vector.NormalizeReward(envs)


def texts() -> Any:
    """A toy text, whose table is large."""
    return gymnasium.make("FrozenLake-v1", max_episode_steps=LIMIT)


def row(value: Any) -> Any:
    """The bytes of observations and rewards."""
    return np.asarray(value).tobytes().hex()


def run(directory: Path, make: Any, updates: int) -> list[Any]:
    """Goes to the number of updates and returns what was seen since the start or the resume."""
    env = make()
    is_vector = isinstance(env.unwrapped, gymnasium.vector.VectorEnv)
    env.action_space.seed(3)
    env.reset(seed=1)
    run = perdure.Run(directory, every=perdure.Every(updates=1))
    seen = run.restore(env=env, seen=[]).seen
    while run.updates < updates:
        step = env.step(env.action_space.sample())
        seen = [*seen, row(step[0]) + row(step[1])]
        if not is_vector and (step[2] or step[3]):
            seen = [*seen, row(env.reset()[0])]
        run.boundary(env_steps=run.env_steps + 1, seen=seen)
    run.close()
    return seen


def workers() -> Any:
    """Environments in processes of their own."""
    from perdure.gym import make_vec

    return make_vec([lambda limit=limit: single(limit) for limit in (5, 7)], mode="async", context="fork")


def compare(directory: Path, make: Any) -> int:
    """The number of stops after which a resume was not the run that was never stopped."""
    straight = run(directory / "straight", make, 40)
    wrong = 0
    for stop in range(1, 40, 3):
        run(directory / f"stopped{stop}", make, stop)
        wrong += run(directory / f"stopped{stop}", make, 40) != straight
    return wrong


if __name__ == "__main__":
    makers = {"single": lambda: single(LIMIT), "several": several, "texts": texts}
    if not IS_OLD:
        makers["workers"] = workers
    found = {name: compare(Path(sys.argv[1]) / name, make) for name, make in makers.items()}
    print(json.dumps({"version": gymnasium.__version__, "numpy": np.__version__, "wrong": found}))
