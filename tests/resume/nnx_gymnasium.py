"""A tiny PPO training in Gymnasium vector environments, to be killed, resumed and made forgetful.

python nnx_gymnasium.py DIRECTORY --env-id Pendulum-v1 --kill-at-boundary 3
"""

import argparse
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from flax import nnx
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import perdure
from perdure.nnx import EvalConfig, LoggingLevel, PPOConfig, TrainConfig, TrainResult, make_mlp_actor_critic, train_ppo
from perdure.nnx.envs.gymnasium import GymnasiumVector

EPISODE_LIMIT = 14
"""Reached by many episodes of CartPole, but not by all; longer than a rollout, and no multiple of its length."""
PPO = PPOConfig(
    n_envs=4,
    rollout_length=10,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    gradient_clipping=0.5,
    logging_level=LoggingLevel.LOSSES | LoggingLevel.TRAIN_ROLLOUT_STATS,
)
STEPS_PER_UPDATE = PPO.steps_per_iteration
EVAL_ENVS = 3
SEED = 5


def config(updates: int, *, evaluates: bool = False) -> TrainConfig:
    """The configuration; with evaluation, it takes place after every update."""
    ppo = replace(PPO, total_steps=updates * STEPS_PER_UPDATE)
    evaluation = EvalConfig(evaluates, every_steps=STEPS_PER_UPDATE, n_envs=EVAL_ENVS, max_episode_length=EPISODE_LIMIT)
    return TrainConfig(ppo, evaluation, seed=SEED)


def make(env_id: str) -> gymnasium.Env[Any, Any]:
    """One environment; with rewards whose scale depends on everything that came before."""
    env = wrappers.RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=EPISODE_LIMIT))
    return wrappers.NormalizeReward(env, gamma=0.9)


def environments(env_id: str, count: int = PPO.n_envs) -> GymnasiumVector:
    """Fresh vector environments."""
    return GymnasiumVector(SyncVectorEnv([lambda: make(env_id)] * count, autoreset_mode=AutoresetMode.SAME_STEP))


def _of_first(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda restored: change(restored.env_states.envs.envs[0])


def _reset_generator(env: Any) -> None:
    env.unwrapped.np_random = np.random.default_rng(0)


def _elapsed_steps(env: Any) -> None:
    env.set_wrapper_attr("_elapsed_steps", 0)


def _state(env: Any) -> None:
    env.unwrapped.state = 0.5 * env.unwrapped.state


def _statistics(env: Any) -> None:
    env.return_rms.count = 1e-4


def _observations(restored: Any) -> None:
    restored.env_states = replace(restored.env_states, obs=0 * restored.env_states.obs)


def _environments(restored: Any) -> None:
    restored.env_states.envs.reset(seed=0)


RESETS: dict[str, Callable[[Any], None]] = {
    "generator": _of_first(_reset_generator),
    "elapsed-steps": _of_first(_elapsed_steps),
    "state": _of_first(_state),
    "reward-statistics": _of_first(_statistics),
    "observations": _observations,
    "environments": _environments,
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


def train(
    directory: str | Path,
    *,
    env_id: str = "CartPole-v1",
    updates: int = 8,
    evaluates: bool = False,
    networks_seed: int = 0,
    reset: str | None = None,
    kill_at_boundary: int | None = None,
) -> TrainResult:
    """Trains, or goes on training, until `updates` updates are done; each boundary is saved.

    Args:
        directory: the run's directory.
        env_id: Gymnasium's name of the environment.
        updates: the horizon.
        evaluates: whether the policy is evaluated after every update.
        networks_seed: what the networks are built from; it matters at a fresh start only.
        reset: a twin of `RESETS`, applied after a resume.
        kill_at_boundary: after the boundary of this number the process kills itself.
    """
    random.seed(networks_seed)
    np.random.seed(networks_seed)
    env = environments(env_id)
    networks = make_mlp_actor_critic(
        env.obs_size, env.action.size, (8,), (8,), nnx.Rngs(networks_seed), action_kind=env.action.kind
    )
    settings = config(updates, evaluates=evaluates)
    saving = {"every": perdure.Every(updates=1), "keep": None, "background": kill_at_boundary is None}
    twin = {"reset": reset, "kill_at_boundary": kill_at_boundary}
    contract = env.contract()
    with ForgetfulRun(
        directory, config=settings, contract=contract, horizon="ppo.total_steps", **saving, **twin
    ) as run:
        return train_ppo(env, networks, settings, eval_env=environments(env_id, EVAL_ENVS), run=run)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--networks-seed", type=int, default=0)
    parser.add_argument("--kill-at-boundary", type=int)
    options = vars(parser.parse_args(argv))
    train(options.pop("directory"), **options)


if __name__ == "__main__":
    main()
