"""The PPO training loop: collect and update, evaluate, film, log, save."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from perdure import Every, Run, check_contract
from perdure.nnx.checkpointing import CheckpointCallback, bind_env_states
from perdure.nnx.config import TrainConfig, crosses_multiple, with_overrides
from perdure.nnx.devices import mesh_of, on_one_device, place
from perdure.nnx.environment import Environment, contract_of
from perdure.nnx.host import HostEnvironments, check_evaluation
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.ppo import iterate
from perdure.nnx.state import (
    TrainingState,
    join_state,
    live_variables,
    new_training_state,
    number_of_envs,
    split_state,
    video_key,
)
from perdure.nnx.video import VideoData, check_can_render, film
from perdure.nnx.watching import Watched, evaluation_in, measure

LogFn = Callable[[dict[str, Any], int], None]
"""Called with an iteration's metrics (flat names, plain numbers) and the env-steps taken."""


VideoFn = Callable[[VideoData], None]
"""Called with each video."""

FREE = ("checkpoint_every_steps", "video", "video.*")
"""Fields of `TrainConfig` that may change when a run is resumed: they leave no trace in it."""

HORIZON = "ppo.total_steps"
"""The field that says how long to train."""


@dataclass(frozen=True)
class TrainResult:
    """What a training leaves."""

    training_state: TrainingState
    """The final state; its networks are the trained policy."""
    final_metrics: dict[str, Any]
    """Metrics of the last iteration."""
    eval_history: list[dict[str, Any]]
    """Each evaluation's metrics in order, with its env-steps under `step`; those before a resume included."""
    total_steps: int
    """Env-steps taken, those before a resume included."""
    total_iterations: int
    """Iterations, likewise."""


@dataclass(frozen=True)
class _Task:
    """What a training does beside changing its state."""

    env: Environment | HostEnvironments
    """To train in."""
    eval_env: Environment | HostEnvironments
    """To evaluate and film in."""
    config: TrainConfig
    """The configuration."""
    log_fn: LogFn | None
    """As in `train_ppo`."""
    video_fn: VideoFn | None
    """As in `train_ppo`."""
    checkpoint_fn: CheckpointCallback | None
    """As in `train_ppo`."""


def train_ppo(
    env: Environment | HostEnvironments,
    networks: StatefulModule,
    config: TrainConfig | None = None,
    *,
    total_steps: int | None = None,
    seed: int | None = None,
    log_fn: LogFn | None = None,
    video_fn: VideoFn | None = None,
    checkpoint_fn: CheckpointCallback | None = None,
    eval_env: Environment | HostEnvironments | None = None,
    initial_state: TrainingState | None = None,
    run: Run | str | Path | None = None,
) -> TrainResult:
    """Train networks by PPO until `total_steps` env-steps are taken.

    With a run, the training is saved as it goes, and picked up where the run stands: the result, every number
    of it, is the one of a training that was never interrupted. A run that has reached `total_steps` returns
    at once. So does a state from `load_checkpoint`, handed in as `initial_state`.

    Args:
        env: The environment to train in; or environments that step on the host, such as `GymnasiumVector`.
        networks: Trained in place.
        config: The configuration; its defaults if None.
        total_steps: Replaces `config.ppo.total_steps`.
        seed: Replaces `config.seed`.
        log_fn: Called once an iteration, before the iteration may be saved: one that is interrupted in
            between is repeated and logged again.
        video_fn: Called with each video, if `config.video.enabled`.
        checkpoint_fn: Called with the keywords `training_state` and `step`: at the start of a fresh training, after
            each iteration that reaches or passes a multiple of `config.checkpoint_every_steps`, and at the end.
        eval_env: The environment to evaluate and film in, if not `env`; environments on the host need others of their
            own for that.
        initial_state: Where to start, if not afresh; must hold `networks`. If it comes from a checkpoint, this must be
            the same training as the one that was saved; only `total_steps`, `checkpoint_every_steps` and the videos may
            be others. `dataclasses.replace(state, contract=None)` makes it the start of another training.
        run: An open run, or the directory of one; the directory is opened with the configuration as its
            contract.

    Raises:
        UsageError: If environments on the host are of another number than the configuration's, or are not told apart
            from those of the evaluation.
        ValueError: If `initial_state` does not fit the networks or the configuration.
        ContractError: If `initial_state` or the run is of another training.
        FloatingPointError: If a loss or a parameter is NaN or infinite; the last checkpoint is from before.
    """
    config = with_overrides(config or TrainConfig(), total_steps=total_steps, seed=seed)
    task = _Task(env, eval_env or env, config, log_fn, video_fn, checkpoint_fn)
    _check_devices(env, config.ppo.n_devices)
    if config.eval.enabled:
        check_evaluation(env, task.eval_env, config.eval.n_envs)
    if config.video.enabled and video_fn is not None:
        check_can_render(task.eval_env)
    sections = contract_of(env)
    state = _start(env, networks, config, initial_state, sections)
    if run is None or isinstance(run, Run):
        return _train(task, state, run)
    seed_process(config.seed, run)
    every = Every(env_steps=config.checkpoint_every_steps)
    with Run(
        run,
        config=config,
        contract=sections,
        horizon=HORIZON,
        schedules="none",
        free=FREE,
        every=every,
    ) as opened:
        return _train(task, state, opened)


def _check_devices(env: Environment | HostEnvironments, n_devices: int) -> None:
    if isinstance(env, HostEnvironments) and n_devices > 1:
        raise ValueError(
            f"PPOConfig.n_devices={n_devices}, but {type(env).__name__} steps on the host: its environments cannot be "
            "split over devices. Set n_devices=1."
        )
    mesh_of(n_devices)  # are there so many?


def _train(task: _Task, state: TrainingState, run: Run | None) -> TrainResult:
    """The loop itself, from the state that the run holds, if there is one."""
    ppo = task.config.ppo
    history, metrics = [dict(entry) for entry in state.eval_history], {}
    if run is not None:
        state = _restore(run, state)
        history, metrics = [*history, *_past_evaluations(run)], _last_metrics(run)
        state = replace(state, eval_history=tuple(history))
    saved_at = _save_fresh(task, state)
    variables = live_variables(state)
    structure, arrays = split_state(state)
    arrays = place(arrays, ppo.n_devices)
    while state.steps_taken < ppo.total_steps:
        started = time.perf_counter()
        before, steps = state.steps_taken, state.steps_taken + ppo.steps_per_iteration
        arrays, scalars = iterate(task.env, structure, ppo, arrays)
        # At once, because the objects still hold the arrays that were donated.
        state = join_state(state, arrays, steps, variables)
        watched = Watched(structure.networks, on_one_device((arrays.params, arrays.rest)), before, steps)
        metrics, rates = measure(task.eval_env, task.config, scalars, watched, started)
        if entry := evaluation_in(metrics, steps):
            history.append(entry)
            state = replace(state, eval_history=tuple(history))
        _film(task, watched)
        if task.log_fn is not None:
            task.log_fn({**metrics, **rates, "total_steps": steps}, steps)
        if run is not None:
            _boundary(run, state, metrics)
        if task.checkpoint_fn is not None and crosses_multiple(task.config.checkpoint_every_steps, before, steps):
            task.checkpoint_fn(training_state=state, step=steps)
            saved_at = steps
    if task.checkpoint_fn is not None and saved_at != state.steps_taken:
        task.checkpoint_fn(training_state=state, step=state.steps_taken)
    if run is not None:
        run.finish()
    return TrainResult(
        training_state=state,
        final_metrics={**metrics, "total_steps": state.steps_taken},
        eval_history=history,
        total_steps=state.steps_taken,
        total_iterations=state.steps_taken // ppo.steps_per_iteration,
    )


def _save_fresh(task: _Task, state: TrainingState) -> int:
    """Saves a fresh training, which was never saved; returns the steps of the last checkpoint."""
    if task.checkpoint_fn is not None and state.steps_taken == 0:
        task.checkpoint_fn(training_state=state, step=0)
    return state.steps_taken


def _film(task: _Task, watched: Watched) -> None:
    if task.video_fn is None or isinstance(task.eval_env, HostEnvironments):  # which were refused if videos are on
        return
    if task.config.video.fires(watched.before, watched.steps):
        key = video_key(task.config.seed, watched.steps)
        task.video_fn(film(task.eval_env, watched.graphdef, watched.states, task.config.video, key, watched.steps))


def seed_process(seed: int, run_directory: str | Path) -> None:
    """Seed Python's and NumPy's global generators, if the run is a new one.

    The training draws nothing from them, but they are part of every run's state, and the operating system seeds
    them otherwise: two runs of one seed would differ in them alone.
    """
    if not (Path(run_directory) / "run.json").exists():
        random.seed(seed)
        np.random.seed(seed)


def _start(
    env: Environment | HostEnvironments,
    networks: StatefulModule,
    config: TrainConfig,
    initial_state: TrainingState | None,
    sections: dict[str, Any],
) -> TrainingState:
    """The state to start from, which bears the contract: the configuration, and what the environment says of itself."""
    ppo = config.ppo
    contract = perdure.contract_of(config, horizon=HORIZON, free=FREE, own=sections)
    if initial_state is None:
        fresh = new_training_state(
            env, networks, ppo.n_envs, config.seed, ppo.learning_rate, ppo.gradient_clipping, ppo.weight_decay
        )
        return replace(fresh, contract=contract)
    if initial_state.networks is not networks:
        raise ValueError("initial_state.networks is not the networks given. Pass the state's own.")
    if initial_state.contract is not None:
        saved, steps = initial_state.contract, initial_state.steps_taken
        check_contract(saved, contract, place="initial_state", env_steps=steps, schedules="none")
    networks.train()  # it may have been evaluated
    state = bind_env_states(env, initial_state)
    n_envs = number_of_envs(state.env_states)
    if n_envs != ppo.n_envs:
        raise ValueError(f"initial_state holds {n_envs} environments, config.ppo.n_envs is {ppo.n_envs}.")
    return replace(state, contract=contract)


def _restore(run: Run, state: TrainingState) -> TrainingState:
    restored = run.restore(
        networks=state.networks,
        optimizer=state.optimizer,
        network_states=state.network_states,
        env_states=state.env_states,
        rng_key=state.rng_key,
        steps_taken=state.steps_taken,
    )
    return replace(
        state,
        network_states=restored.network_states,
        env_states=restored.env_states,
        rng_key=restored.rng_key,
        steps_taken=restored.steps_taken,
    )


def _boundary(run: Run, state: TrainingState, metrics: dict[str, Any]) -> None:
    run.boundary(
        env_steps=state.steps_taken,
        network_states=state.network_states,
        env_states=state.env_states,
        rng_key=state.rng_key,
        steps_taken=state.steps_taken,
        metrics=metrics,
    )


def _past_evaluations(run: Run) -> list[dict[str, Any]]:
    """The history as the run's metrics tell it; nothing about it is saved twice."""
    rows = run.metrics_rows()
    return [entry for row in rows if (entry := evaluation_in(row, row["env_steps"])) is not None]


def _last_metrics(run: Run) -> dict[str, Any]:
    rows = run.metrics_rows()
    counters = ("boundary", "env_steps", "updates")
    return {name: value for name, value in rows[-1].items() if name not in counters} if rows else {}
