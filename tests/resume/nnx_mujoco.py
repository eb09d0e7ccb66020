"""A tiny PPO training on a brax or MuJoCo Playground environment; importable, and a process of its own.

python nnx_mujoco.py DIRECTORY --env inverted_pendulum --networks-seed 3
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import perdure
from perdure.nnx import EvalConfig, PPOConfig, TrainConfig, make_mlp_actor_critic, train_ppo
from perdure.nnx.environment import contract_of
from perdure.nnx.envs.brax import BraxEnvironment
from perdure.nnx.envs.physics import PhysicsEnvironment
from perdure.nnx.envs.playground import PlaygroundEnvironment

EPISODE_LENGTH = 7
"""Longer than a rollout and no multiple of it: most boundaries fall into episodes, and most episodes are cut."""
UPDATES = 6
PPO = PPOConfig(n_envs=4, rollout_length=5, n_epochs=2, n_minibatches=2, learning_rate=1e-2)
CONFIG = TrainConfig(
    replace(PPO, total_steps=UPDATES * PPO.steps_per_iteration), eval=EvalConfig(enabled=False), seed=5
)
ENVIRONMENTS: dict[str, Callable[[], PhysicsEnvironment]] = {
    "fast": lambda: BraxEnvironment("fast", episode_length=EPISODE_LENGTH),
    "inverted_pendulum": lambda: BraxEnvironment("inverted_pendulum", episode_length=EPISODE_LENGTH),
    "inverted_pendulum-mjx": lambda: BraxEnvironment("inverted_pendulum", "mjx", episode_length=EPISODE_LENGTH),
    "CartpoleBalance": lambda: PlaygroundEnvironment("CartpoleBalance", episode_length=EPISODE_LENGTH),
}


class ForgetfulRun(perdure.Run):
    """A run that gives one part of the environments back as a fresh start has it."""

    def __init__(self, *args: Any, reset: str | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reset = reset

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        """As a run does; then the reset."""
        fresh = jax.tree.map(jnp.copy, components["env_states"])
        restored = super().restore(env_steps=env_steps, **components)
        if self.resumed and self._reset is not None:
            restored.env_states = RESETS[self._reset](restored.env_states, fresh)
        return restored


RESETS: dict[str, Callable[[Any, Any], Any]] = {
    "steps": lambda saved, fresh: replace(saved, data={**saved.data, "steps": fresh.data["steps"]}),
    "physics": lambda saved, fresh: replace(saved, data={**saved.data, "physics": fresh.data["physics"]}),
}
"""Twins: what of the saved states is lost after the restore, by name."""


def train(directory: str | Path, env_name: str, *, networks_seed: int = 0, reset: str | None = None) -> None:
    """Trains to the end, or goes on, with a checkpoint at every boundary.

    Args:
        directory: the run's directory.
        env_name: a name of `ENVIRONMENTS`.
        networks_seed: what the networks are built from, and the process's generators seeded with; it matters at a
            fresh start only.
        reset: a twin of `RESETS`, applied after a resume.
    """
    random.seed(networks_seed)
    np.random.seed(networks_seed)
    env = ENVIRONMENTS[env_name]()
    networks = make_mlp_actor_critic(env.obs_size, env.action.size, (8,), (8,), nnx.Rngs(networks_seed))
    saving = {"every": perdure.Every(updates=1), "keep": None, "horizon": "ppo.total_steps"}
    with ForgetfulRun(directory, config=CONFIG, contract=contract_of(env), reset=reset, **saving) as run:
        train_ppo(env, networks, CONFIG, run=run)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--env", choices=ENVIRONMENTS, required=True)
    parser.add_argument("--networks-seed", type=int, default=0)
    options = parser.parse_args(argv)
    train(options.directory, options.env, networks_seed=options.networks_seed)


if __name__ == "__main__":
    main()
