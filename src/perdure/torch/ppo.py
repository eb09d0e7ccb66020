"""PPO, read from top to bottom: build, restore, collect, estimate, update, evaluate, save."""

import logging
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from perdure import Run
from perdure.gym import seed_spaces
from perdure.torch.actions import actions_of
from perdure.torch.config import PPOConfig
from perdure.torch.environments import (
    MASK,
    Factory,
    autoreset_mode,
    check_environments,
    factory_of,
    is_image,
    masks_for,
    vector_of,
)
from perdure.torch.evaluation import check_evaluation, evaluate
from perdure.torch.learners import learner_of
from perdure.torch.loss import Told, ppo_loss
from perdure.torch.minibatches import minibatches_of
from perdure.torch.networks import ActorCritic, to_numpy
from perdure.torch.rollout import collect
from perdure.torch.state import Carried, LogFn, Rollout, Task, TrainingState

_log = logging.getLogger("perdure")

HORIZON = "total_timesteps"
"""The field that says how long to train."""

FREE = ("eval_every_steps", "eval_episodes", "eval_max_length", "device")
"""Fields that may change when a run is resumed: they leave no trace in it."""


@dataclass(frozen=True)
class TrainResult:
    """What a training leaves."""

    networks: ActorCritic
    """The trained policy."""
    metrics: dict[str, Any]
    """Of the last update."""
    total_steps: int
    """Env-steps taken, those before a resume included."""


def train(
    environments: str | Factory | VectorEnv[Any, Any, Any],
    config: PPOConfig | None = None,
    *,
    run: Run | str | Path | None = None,
    log_fn: LogFn | None = None,
) -> TrainResult:
    """Train an actor and a critic by PPO until `config.total_timesteps` env-steps are taken.

    With a run, the training is saved as it goes, and picked up where the run stands: the result, every number of it, is
    the one of a training that was never interrupted. A run that has reached its total returns at once.

    Args:
        environments: Gymnasium's id, a function that makes one environment, or a vector environment, which is reset
            here and not closed.
        config: The options; their defaults if None.
        run: An open run, or the directory of one, which is then saved every ten minutes.
        log_fn: Called once an update, before it may be saved: an update that is interrupted in between is repeated and
            logged again.

    Raises:
        UsageError: If the environments do not fit the trainer or the options; nothing was trained or written.
        perdure.PerdureError: What opening or restoring the run raises.
        FloatingPointError: If a reward, an observation, a loss or a gradient is NaN or infinite; no parameter was
            changed by it, and the last checkpoint is from before.
    """
    config = config or PPOConfig()
    envs, factory = environments, None
    if not isinstance(envs, VectorEnv):
        factory = factory_of(envs, config) if isinstance(envs, str) else envs
        envs = vector_of(factory, config)
    try:
        check_environments(envs, config)
        check_evaluation(envs, factory, config)
        task = Task(config, actions_of(envs.single_action_space), autoreset_mode(envs), factory, log_fn)
        with _threads(config.n_threads):
            state = start(task, envs)
            if run is None or isinstance(run, Run):
                return _train(task, state, run)
            seed_process(config.seed, run)
            schedules = None if config.anneal_lr else "none"
            with Run(run, config=config, horizon=HORIZON, schedules=schedules, free=FREE) as opened:
                return _train(task, state, opened)
    finally:
        if factory is not None:
            envs.close()


def _train(task: Task, state: TrainingState, run: Run | None) -> TrainResult:
    """The loop itself, from where the run stands, if there is one."""
    config, metrics = task.config, {}
    if run is not None:
        metrics = restore(state, run)
        _warn_of_rest(config, run)
    while state.env_steps < config.total_timesteps:
        for group in state.optimizer.param_groups:
            group["lr"] = config.learning_rate * _remaining(config, run, state.env_steps)
        rollout, metrics = collect(task, state)
        metrics |= update(task, state, rollout)
        before, state.env_steps = state.env_steps, state.env_steps + config.steps_per_update
        every = config.eval_every_steps
        if task.factory is not None and every and state.env_steps // every > before // every:
            metrics |= evaluate(state.networks, task.actions, task.factory, config, state.env_steps)
        if task.log_fn is not None:
            task.log_fn(metrics, state.env_steps)
        if run is not None:
            run.boundary(env_steps=state.env_steps, carried=state.carried, metrics=metrics)
    if run is not None:
        run.finish()
    return TrainResult(state.networks, metrics, state.env_steps)


def _remaining(config: PPOConfig, run: Run | None, env_steps: int) -> float:
    """What is left of the learning rate: by the run's knots, if its total was ever changed."""
    if not config.anneal_lr:
        return 1
    return 1 - (run.progress(env_steps) if run is not None and run.has_progress else env_steps / config.total_timesteps)


def _warn_of_rest(config: PPOConfig, run: Run) -> None:
    """A rate that has fallen to 0 stays there, whatever the total."""
    if run.env_steps < config.total_timesteps and not _remaining(config, run, run.env_steps):
        _log.warning(
            "%s: the learning rate has fallen to 0 by %s env-steps and stays there: nothing more is learned. A "
            "schedule is stretched before its end.",
            run.directory,
            f"{run.env_steps:,}",
        )


def restore(state: TrainingState, run: Run) -> dict[str, Any]:
    """Begins the run or resumes it; returns the metrics of its last update."""
    restored = run.restore(
        networks=state.networks,
        optimizer=state.optimizer,
        envs=state.envs,
        action_rng=state.action_rng,
        shuffle_rng=state.shuffle_rng,
        carried=state.carried,
    )
    state.carried, state.env_steps = restored.carried, restored.env_steps
    last = (run.metrics_rows() or [{}])[-1]
    return {name: value for name, value in last.items() if name not in ("boundary", "env_steps", "updates")}


def start(task: Task, envs: VectorEnv[Any, Any, Any]) -> TrainingState:
    """A fresh training: everything that is drawn comes from the seed."""
    config, space = task.config, envs.single_observation_space
    for_networks, *for_generators = np.random.SeedSequence(config.seed).spawn(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(for_networks.generate_state(1)[0]))
        networks = ActorCritic(
            space.shape or (),
            task.actions.n_outputs,
            hidden_sizes=config.hidden_sizes,
            lstm_size=config.lstm_size,
            has_scale=task.actions.has_scale,
            is_image=is_image(space),
        ).to(config.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)
    generators = [np.random.Generator(np.random.PCG64(seed)) for seed in for_generators]
    return TrainingState(networks, optimizer, envs, *generators, carried=_first(task, envs, networks))


def _first(task: Task, envs: VectorEnv[Any, Any, Any], networks: ActorCritic) -> Carried:
    seed_spaces(envs, task.config.seed)
    observation, info = envs.reset(seed=task.config.seed)
    n_envs, carry = envs.num_envs, networks.empty_carry(envs.num_envs)
    return Carried(
        observation=np.array(observation, np.uint8 if networks.is_image else np.float32),
        action_mask=masks_for(task.actions, info, n_envs) if task.config.mask_actions and MASK in info else None,
        memory=None if carry is None else to_numpy(carry),
        starts=np.ones(n_envs, bool),
        resets=np.zeros(n_envs, bool),
        returns=np.zeros(n_envs),
        lengths=np.zeros(n_envs, np.int64),
    )


def update(task: Task, state: TrainingState, rollout: Rollout) -> dict[str, Any]:
    """Several passes over what was collected, a step of the optimizer a minibatch."""
    config, told = task.config, []
    with learner_of(task, state) as learner:
        for minibatch in minibatches_of(rollout, config, state.shuffle_rng):
            tells, derivatives = ppo_loss(*learner.say(minibatch), minibatch.taught, config)
            told.append(tells)
            if config.target_kl is not None and tells.divergence() > 1.5 * config.target_kl:
                break
            if not math.isfinite(learner.derive(derivatives)):
                raise FloatingPointError(_not_finite(tells, config, state.env_steps))
            learner.step()
    rate = state.optimizer.param_groups[0]["lr"]
    losses = Told.joined(told).parts(config) if told else {}  # there are none where every step only reset
    return {**losses, "explained_variance": _explained(rollout), "learning_rate": rate}


def _explained(rollout: Rollout) -> float:
    """Share of the returns' variance that the critic foresaw; 0 where they do not vary."""
    counts = ... if rollout.counts is None else torch.from_numpy(rollout.counts)
    returns, values = rollout.returns[counts].double(), rollout.values[counts].double()
    variance = float(returns.var(correction=0)) if len(returns) else 0.0
    return 1 - float((returns - values).var(correction=0)) / variance if variance > 0 else 0.0


def _not_finite(tells: Told, config: PPOConfig, env_steps: int) -> str:
    wrong = [f"{name} is {value}" for name, value in tells.parts(config).items() if not math.isfinite(value)]
    return (
        f"the update after {env_steps:,} env-steps: {', '.join(wrong) or 'the gradient is NaN or infinite'}. The "
        "networks are as before that minibatch. Lower learning_rate, or scale rewards and observations."
    )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads of PyTorch, for as long as this lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seed_process(seed: int, run_directory: str | Path) -> None:
    """Seeds the process's generators, if the run is a new one.

    The training draws nothing from them, but they are part of every run's state, and two runs of one seed would differ
    in them alone.
    """
    if not (Path(run_directory) / "run.json").exists():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
