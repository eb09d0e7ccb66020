"""Tiny PPO trainings with PyTorch, to be killed, resumed and made forgetful.

python torch_ppo.py DIRECTORY --case lstm --kill-at-boundary 3
"""

import argparse
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces, wrappers

import perdure
from perdure.torch import PPOConfig, TrainResult, train

EPISODE_LIMIT = 14
"""Reached by many episodes of CartPole, but not by all; longer than a rollout, and no multiple of its length."""
TINY = PPOConfig(
    total_timesteps=8 * 4 * 10,
    seed=5,
    n_envs=4,
    n_steps=10,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    hidden_sizes=(8,),
)
UPDATES = TINY.total_timesteps // TINY.steps_per_update


class Maze(gymnasium.Env[np.ndarray, Any]):
    """A walk on a line of eleven places, with walls that move: which moves are legal is in `info`."""

    observation_space = spaces.Box(-1, 1, (11,), np.float32)

    def __init__(self, *, several: bool) -> None:
        """`several`: two choices an action, of which the second has one illegal possibility as well."""
        self.several = several
        self.action_space = spaces.MultiDiscrete([3, 2]) if several else spaces.Discrete(3, start=1)
        self.place, self.steps, self.mask = 0, 0, np.ones(0, np.int8)

    def _tell(self) -> tuple[np.ndarray, dict[str, Any]]:
        self.mask = np.ones(5 if self.several else 3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        if self.several:
            self.mask[3 + self.np_random.integers(2)] = 0
        observation = np.zeros(11, np.float32)
        observation[self.place] = 1
        return observation, {"action_mask": self.mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        """Begins in the middle."""
        super().reset(seed=seed)
        self.place, self.steps = 5, 0
        return self._tell()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Any]:
        """A move to the left, none, or to the right; an illegal one is an error."""
        first = int(action[0]) if self.several else int(action) - 1
        assert self.mask[first], "an illegal move"
        assert not self.several or self.mask[3 + int(action[1])], "an illegal second choice"
        self.place, self.steps = self.place + first - 1, self.steps + 1
        is_out = self.place in (0, 10)
        return (
            *self._tell()[:1],
            float(self.place == 10),
            is_out,
            self.steps >= EPISODE_LIMIT,
            {"action_mask": self.mask},
        )


def stock(env_id: str) -> gymnasium.Env[Any, Any]:
    """An environment in nine stock wrappers, the three of `gymnasium.make` included."""
    env = gymnasium.make(env_id, max_episode_steps=EPISODE_LIMIT)
    env = wrappers.RecordEpisodeStatistics(env)
    env = wrappers.TimeAwareObservation(env)
    env = wrappers.DelayObservation(env, 1)
    env = wrappers.FrameStackObservation(env, 2)
    env = wrappers.FlattenObservation(env)
    env = wrappers.NormalizeObservation(env)
    return wrappers.NormalizeReward(wrappers.StickyAction(env, 0.25), gamma=0.9)


def limited(env_id: str) -> gymnasium.Env[Any, Any]:
    """An environment with short episodes."""
    return gymnasium.make(env_id, max_episode_steps=EPISODE_LIMIT)


@dataclass(frozen=True)
class Case:
    """What is trained."""

    make: Callable[[], gymnasium.Env[Any, Any]]
    """One environment."""
    options: dict[str, Any] = field(default_factory=dict)
    """How it differs from `TINY`."""


CASES = {
    "cartpole": Case(lambda: limited("CartPole-v1")),
    "pendulum": Case(lambda: stock("Pendulum-v1")),
    "next-step": Case(lambda: limited("CartPole-v1"), {"autoreset": "next-step"}),
    "disabled": Case(lambda: limited("CartPole-v1"), {"autoreset": "disabled"}),
    "async": Case(lambda: limited("CartPole-v1"), {"vectorization": "async", "autoreset": "next-step"}),
    "masks": Case(lambda: Maze(several=False)),
    "masks-next-step": Case(lambda: Maze(several=False), {"autoreset": "next-step"}),
    "masks-several": Case(lambda: Maze(several=True), {"autoreset": "disabled"}),
    "lstm": Case(lambda: limited("CartPole-v1"), {"lstm_size": 6}),
    "lstm-next-step": Case(lambda: Maze(several=False), {"lstm_size": 6, "autoreset": "next-step"}),
    "clipped": Case(
        lambda: limited("CartPole-v1"),
        {"anneal_lr": False, "clip_range_value": 0.2, "target_kl": 0.01, "max_grad_norm": None},
    ),
}
"""By name. Another environment is one line."""


def _generator(restored: Any) -> None:
    restored.envs.envs[0].unwrapped.np_random = np.random.default_rng(0)


def _elapsed_steps(restored: Any) -> None:
    restored.envs.envs[0].set_wrapper_attr("_elapsed_steps", 0)


def _carried(**changes: Callable[[Any], Any]) -> Callable[[Any], None]:
    def change(restored: Any) -> None:
        new = {name: to(getattr(restored.carried, name)) for name, to in changes.items()}
        restored.carried = replace(restored.carried, **new)

    return change


def _moments(restored: Any) -> None:
    for state in restored.optimizer.state.values():
        state["exp_avg_sq"].zero_()


def _optimizer_steps(restored: Any) -> None:
    for state in restored.optimizer.state.values():
        state["step"].zero_()


def _weights(restored: Any) -> None:
    with torch.no_grad():
        next(restored.networks.policy.parameters())[0, 0] += 1e-3


def _fresh(name: str) -> Callable[[Any], None]:
    def change(restored: Any) -> None:
        getattr(restored, name).bit_generator.state = np.random.PCG64(0).state

    return change


RESETS: dict[str, Callable[[Any], None]] = {
    "env-generator": _generator,
    "elapsed-steps": _elapsed_steps,
    "environments": lambda restored: restored.envs.reset(seed=0),
    "observation": _carried(observation=lambda old: 0 * old),
    "action-mask": _carried(action_mask=lambda old: np.roll(old, 1, axis=1)),
    "memory": _carried(memory=lambda old: (0 * old[0], 0 * old[1])),
    "starts": _carried(starts=lambda old: ~old),
    "resets": _carried(resets=lambda old: ~old),
    "returns": _carried(returns=lambda old: 0 * old),
    "lengths": _carried(lengths=lambda old: 0 * old),
    "moments": _moments,
    "optimizer-steps": _optimizer_steps,
    "weights": _weights,
    "action-rng": _fresh("action_rng"),
    "shuffle-rng": _fresh("shuffle_rng"),
}
"""Twins: what goes wrong after the restore, by name."""


class ForgetfulRun(perdure.Run):
    """A run that kills its process on demand, and resets one part after a resume."""

    def __init__(self, *args: Any, reset: str | None, kill_at_boundary: int | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reset, self._kill_at_boundary = reset, kill_at_boundary

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        """As a run does; then the reset."""
        restored = super().restore(env_steps=env_steps, **components)
        if self.resumed and self._reset is not None:
            RESETS[self._reset](restored)
        return restored

    def boundary(self, **given: Any) -> None:
        """As a run does; then perhaps the end of the process."""
        super().boundary(**given)
        if self.boundary_number == self._kill_at_boundary:
            os.kill(os.getpid(), signal.SIGKILL)


def train_case(
    directory: str | Path,
    case: str = "cartpole",
    *,
    reset: str | None = None,
    kill_at_boundary: int | None = None,
    **options: Any,
) -> TrainResult:
    """Trains, or goes on training, to the end; each boundary is saved.

    Args:
        directory: the run's directory.
        case: of `CASES`.
        reset: a twin of `RESETS`, applied after a resume.
        kill_at_boundary: after the boundary of this number the process kills itself.
        options: more of `PPOConfig`.
    """
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    config = replace(TINY, **CASES[case].options, **options)
    saving = {"every": perdure.Every(updates=1), "keep": None, "background": kill_at_boundary is None}
    twin = {"reset": reset, "kill_at_boundary": kill_at_boundary}
    free = ("eval_every_steps", "eval_episodes")
    with ForgetfulRun(directory, config=config, horizon="total_timesteps", free=free, **saving, **twin) as run:
        return train(CASES[case].make, config, run=run)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--case", choices=CASES, default="cartpole")
    parser.add_argument("--kill-at-boundary", type=int)
    options = vars(parser.parse_args(argv))
    train_case(options.pop("directory"), **options)


if __name__ == "__main__":
    main()
