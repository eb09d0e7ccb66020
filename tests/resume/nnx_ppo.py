"""A tiny PPO training with JAX, to be killed, resumed and made forgetful; importable, and a process of its own.

    python nnx_ppo.py DIRECTORY --updates 8 --kill-at-boundary 3

It prints `ready` before it opens the run and `boundary N` after each boundary, for whoever wants to kill it.
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

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import perdure
from perdure.nnx import EvalConfig, PPOConfig, TrainConfig, TrainResult, make_mlp_actor_critic, train_ppo
from perdure.nnx.envs.gymnax import GymnaxEnvironment
from perdure.nnx.networks.normalizer import NormalizerCounter, NormalizerM2, NormalizerMean
from perdure.nnx.networks.types import StatefulModule

EPISODE_LIMIT = 14
"""Reached by many episodes of CartPole, but not by all; longer than a rollout, and no multiple of its length."""
PPO = PPOConfig(n_envs=4, rollout_length=10, n_epochs=2, n_minibatches=2, learning_rate=1e-2, gradient_clipping=0.5)
STEPS_PER_UPDATE = PPO.steps_per_iteration
SEED = 5

Say = Callable[[str], None]


def config(updates: int, *, evaluates: bool = False) -> TrainConfig:
    """The configuration; with evaluation, it takes place after every update."""
    ppo = replace(PPO, total_steps=updates * STEPS_PER_UPDATE)
    evaluation = EvalConfig(evaluates, every_steps=STEPS_PER_UPDATE, n_envs=3, max_episode_length=EPISODE_LIMIT)
    return TrainConfig(ppo, evaluation, seed=SEED)


def build(env_id: str, seed: int) -> tuple[GymnaxEnvironment, StatefulModule]:
    """Environment and networks; a resumed run builds its networks from any seed it likes."""
    env = GymnaxEnvironment(env_id, max_steps_in_episode=EPISODE_LIMIT)
    rngs = nnx.Rngs(seed)
    return env, make_mlp_actor_critic(env.obs_size, env.action.size, (8,), (8,), rngs, action_kind=env.action.kind)


class ForgetfulRun(perdure.Run):
    """A run that says where it stands, kills its process on demand, and resets one part after a resume."""

    def __init__(self, *args: Any, reset: str | None, kill_at_boundary: int | None, say: Say, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reset, self._kill_at_boundary, self._say = reset, kill_at_boundary, say

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        """As a run does; then the reset."""
        self._say("ready")
        fresh = {name: _copy(component) for name, component in components.items()}
        restored = super().restore(env_steps=env_steps, **components)
        if self.resumed and self._reset is not None:
            RESETS[self._reset](restored, SimpleNamespace(**fresh))
        return restored

    def boundary(self, **given: Any) -> None:
        """As a run does; then perhaps the end of the process."""
        super().boundary(**given)
        self._say(f"boundary {self.boundary_number}")
        if self.boundary_number == self._kill_at_boundary:
            os.kill(os.getpid(), signal.SIGKILL)


def _copy(component: Any) -> Any:
    state = nnx.state(component) if isinstance(component, nnx.Pytree) else component
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, int) else jnp.copy(leaf), state)


Reset = Callable[[Any, Any], None]
"""Resets a part of what was restored to what it was before, when nothing had been learned."""


def _variables(component: str, *filters: Any) -> Reset:
    def reset(restored: Any, fresh: Any) -> None:
        nnx.update(getattr(restored, component), nnx.filter_state(getattr(fresh, component), nnx.Any(*filters)))

    return reset


def _at(step: str) -> Callable[[Any, Any], bool]:
    return lambda path, _value: step in path


def _value(name: str) -> Reset:
    return lambda restored, fresh: setattr(restored, name, getattr(fresh, name))


def _env_time(restored: Any, fresh: Any) -> None:
    data = restored.env_states.data
    state = data["state"].replace(time=fresh.env_states.data["state"].time)
    restored.env_states = replace(restored.env_states, data={**data, "state": state})


def _env_keys(restored: Any, fresh: Any) -> None:
    data = {**restored.env_states.data, "key": fresh.env_states.data["key"]}
    restored.env_states = replace(restored.env_states, data=data)


def _env_observation(restored: Any, fresh: Any) -> None:
    restored.env_states = replace(restored.env_states, obs=fresh.env_states.obs)


RESETS: dict[str, Reset] = {
    "parameters": _variables("networks", nnx.Param),
    "normalizer": _variables("networks", NormalizerMean, NormalizerM2, NormalizerCounter),
    "normalizer-count": _variables("networks", NormalizerCounter),
    "action-key": _variables("networks", nnx.RngKey),
    "action-count": _variables("networks", nnx.RngCount),
    "optimizer": _variables("optimizer", ...),
    "first-moment": _variables("optimizer", _at("mu")),
    "second-moment": _variables("optimizer", _at("nu")),
    "bias-correction": _variables("optimizer", _at("count")),
    "optimizer-step": _variables("optimizer", _at("step")),
    "environments": _value("env_states"),
    "environment-time": _env_time,
    "environment-keys": _env_keys,
    "environment-observation": _env_observation,
    "rng-key": _value("rng_key"),
    "steps-taken": _value("steps_taken"),
}
"""Twins: what goes wrong after the restore, by name."""


def train(
    directory: str | Path,
    *,
    env_id: str = "CartPole-v1",
    updates: int = 8,
    every_updates: int | None = 1,
    evaluates: bool = False,
    networks_seed: int = 0,
    reset: str | None = None,
    kill_at_boundary: int | None = None,
    keep_last: int | None = None,
    say: Say = lambda line: None,
) -> TrainResult:
    """Trains, or goes on training, until `updates` updates are done.

    Args:
        directory: the run's directory.
        env_id: gymnax's name of the environment.
        updates: the horizon.
        every_updates: the cadence; None saves the first and the last boundary only.
        evaluates: whether the policy is evaluated after every update.
        networks_seed: what the networks are built from, and the process's generators seeded with; it matters at a
            fresh start only.
        reset: a twin of `RESETS`, applied after a resume.
        kill_at_boundary: after the boundary of this number, which is committed before, the process kills itself.
        keep_last: how many checkpoints stay; None: all.
        say: told where the training stands.
    """
    random.seed(networks_seed)
    np.random.seed(networks_seed)
    env, networks = build(env_id, networks_seed)
    settings = config(updates, evaluates=evaluates)
    saving = {
        "every": perdure.Every(updates=every_updates),
        "keep": None if keep_last is None else perdure.Keep(last=keep_last),
        "background": kill_at_boundary is None,
    }
    twin = {"reset": reset, "kill_at_boundary": kill_at_boundary, "say": say}
    with ForgetfulRun(directory, config=settings, horizon="ppo.total_steps", **saving, **twin) as run:
        return train_ppo(env, networks, settings, run=run)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--networks-seed", type=int, default=0)
    parser.add_argument("--kill-at-boundary", type=int)
    parser.add_argument("--keep-last", type=int, help="without it, every checkpoint stays")
    options = vars(parser.parse_args(argv))
    train(options.pop("directory"), **options, say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
