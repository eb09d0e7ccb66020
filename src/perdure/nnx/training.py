"""The PPO training loop: collect and update, evaluate, log, let the run save."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from perdure import Every, Run
from perdure.nnx.config import TrainConfig, with_overrides
from perdure.nnx.environment import Environment, contract_of, done_of
from perdure.nnx.evaluation import evaluate
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.ppo import iterate
from perdure.nnx.state import (
    Arrays,
    Structure,
    TrainingState,
    evaluation_key,
    join_state,
    new_training_state,
    split_state,
)

LogFn = Callable[[dict[str, Any], int], None]
"""Called with an iteration's metrics (flat names, plain numbers) and the env-steps taken."""


FREE = ("checkpoint_every_steps",)
"""Fields of `TrainConfig` that may change when a run is resumed."""


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


def train_ppo(
    env: Environment,
    networks: StatefulModule,
    config: TrainConfig | None = None,
    *,
    total_steps: int | None = None,
    seed: int | None = None,
    log_fn: LogFn | None = None,
    eval_env: Environment | None = None,
    initial_state: TrainingState | None = None,
    run: Run | str | Path | None = None,
) -> TrainResult:
    """Train networks by PPO until `total_steps` env-steps are taken.

    With a run, the training is saved as it goes, and picked up where the run stands: the result, every number
    of it, is the one of a training that was never interrupted. A run that has reached `total_steps` returns
    at once.

    Args:
        env: The environment to train in.
        networks: Trained in place.
        config: The configuration; its defaults if None.
        total_steps: Replaces `config.ppo.total_steps`.
        seed: Replaces `config.seed`.
        log_fn: Called once an iteration, before the iteration may be saved: one that is interrupted in
            between is repeated and logged again.
        eval_env: The environment to evaluate in, if not `env`.
        initial_state: Where to start, if not afresh; must hold `networks`.
        run: An open run, or the directory of one; the directory is opened with the configuration as its
            contract.

    Raises:
        ValueError: If `initial_state` does not fit the networks or the configuration.
        FloatingPointError: If a loss is NaN or infinite; the last checkpoint is from before.
    """
    config = with_overrides(config or TrainConfig(), total_steps=total_steps, seed=seed)
    state = _start(env, networks, config, initial_state)
    if run is None or isinstance(run, Run):
        return _train(env, eval_env or env, state, config, run, log_fn)
    seed_process(config.seed, run)
    every = Every(env_steps=config.checkpoint_every_steps)
    with Run(
        run,
        config=config,
        contract=contract_of(env),
        horizon="ppo.total_steps",
        schedules="none",
        free=FREE,
        every=every,
    ) as opened:
        return _train(env, eval_env or env, state, config, opened, log_fn)


def _train(
    env: Environment,
    eval_env: Environment,
    state: TrainingState,
    config: TrainConfig,
    run: Run | None,
    log_fn: LogFn | None,
) -> TrainResult:
    """The loop itself, from the state that the run holds, if there is one."""
    history: list[dict[str, Any]] = []
    metrics: dict[str, Any] = {}
    if run is not None:
        state = _restore(run, state)
        history, metrics = _past_evaluations(run), _last_metrics(run)
    structure, arrays = split_state(state)
    while state.steps_taken < config.ppo.total_steps:
        before, steps = state.steps_taken, state.steps_taken + config.ppo.steps_per_iteration
        arrays, scalars = iterate(env, structure, config.ppo, arrays)
        # At once, because the objects still hold the arrays that were donated.
        state = join_state(state, arrays, steps)
        evaluated = config.eval.fires(before, steps)
        if evaluated:
            scalars |= _evaluate(eval_env, structure, arrays, config, steps)
        metrics = to_numbers(scalars)
        check_losses(metrics, steps)
        if evaluated:
            history.append(_evaluation(metrics, steps))
        if log_fn is not None:
            log_fn(metrics, steps)
        if run is not None:
            _boundary(run, state, metrics)
    if run is not None:
        run.finish()
    return TrainResult(
        training_state=state,
        final_metrics=metrics,
        eval_history=history,
        total_steps=state.steps_taken,
        total_iterations=state.steps_taken // config.ppo.steps_per_iteration,
    )


def seed_process(seed: int, run_directory: str | Path) -> None:
    """Seed Python's and NumPy's global generators, if the run is a new one.

    The training draws nothing from them, but they are part of every run's state, and the operating system seeds
    them otherwise: two runs of one seed would differ in them alone.
    """
    if not (Path(run_directory) / "run.json").exists():
        random.seed(seed)
        np.random.seed(seed)


def to_numbers(scalars: dict[str, jax.Array]) -> dict[str, Any]:
    """Scalar arrays as plain numbers, in one transfer: the iteration's only wait for the device."""
    return {name: value.item() for name, value in jax.device_get(scalars).items()}


def check_losses(metrics: dict[str, Any], env_steps: int) -> None:
    """Stop at the first loss that is no number: the parameters are lost then, and must not be saved.

    Raises:
        FloatingPointError: If a metric below `losses/` is NaN or infinite; all such metrics are named.
    """
    broken = {name: value for name, value in metrics.items() if name.startswith("losses/") and not math.isfinite(value)}
    if broken:
        listing = ", ".join(f"{name} is {value}" for name, value in broken.items())
        raise FloatingPointError(
            f"env_steps={env_steps}: {listing}; expected finite numbers. Nothing was saved after that: the run's last "
            "checkpoint is from before. Look for rewards or observations that are no numbers, or go on from the last "
            "checkpoint with a smaller learning rate or with gradient_clipping."
        )


def _start(
    env: Environment, networks: StatefulModule, config: TrainConfig, initial_state: TrainingState | None
) -> TrainingState:
    ppo = config.ppo
    if initial_state is None:
        return new_training_state(
            env, networks, ppo.n_envs, config.seed, ppo.learning_rate, ppo.gradient_clipping, ppo.weight_decay
        )
    if initial_state.networks is not networks:
        raise ValueError("initial_state.networks is not the networks given. Pass the state's own.")
    n_envs = done_of(initial_state.env_states).shape[0]
    if n_envs != ppo.n_envs:
        raise ValueError(f"initial_state holds {n_envs} environments, config.ppo.n_envs is {ppo.n_envs}.")
    return initial_state


def _restore(run: Run, state: TrainingState) -> TrainingState:
    restored = run.restore(
        networks=state.networks,
        optimizer=state.optimizer,
        network_states=state.network_states,
        env_states=state.env_states,
        rng_key=state.rng_key,
        steps_taken=state.steps_taken,
    )
    return TrainingState(
        networks=state.networks,
        network_states=restored.network_states,
        env_states=restored.env_states,
        optimizer=state.optimizer,
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


def _evaluate(
    env: Environment, structure: Structure, arrays: Arrays, config: TrainConfig, steps: int
) -> dict[str, jax.Array]:
    key = evaluation_key(config.seed, steps)
    states = (arrays.params, arrays.rest)
    found = evaluate(env, structure.networks, states, config.eval.n_envs, config.eval.max_episode_length, key)
    return {f"{_EVAL}{name}": value for name, value in found.items()}


_EVAL = "eval/"


def _evaluation(metrics: dict[str, Any], steps: int) -> dict[str, Any]:
    """An entry of the evaluation history."""
    found = {name.removeprefix(_EVAL): value for name, value in metrics.items() if name.startswith(_EVAL)}
    return {"step": steps, **found}


def _past_evaluations(run: Run) -> list[dict[str, Any]]:
    """The history as the run's metrics tell it; nothing about it is saved twice."""
    rows = run.metrics_rows()
    return [_evaluation(row, row["env_steps"]) for row in rows if any(name.startswith(_EVAL) for name in row)]


def _last_metrics(run: Run) -> dict[str, Any]:
    rows = run.metrics_rows()
    counters = ("boundary", "env_steps", "updates")
    return {name: value for name, value in rows[-1].items() if name not in counters} if rows else {}
