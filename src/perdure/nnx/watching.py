"""What the training loop measures: an iteration's metrics, evaluations, and how fast it goes."""

import math
import time
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from perdure.nnx.config import TrainConfig
from perdure.nnx.environment import Environment
from perdure.nnx.evaluation import evaluate
from perdure.nnx.host import HostEnvironments
from perdure.nnx.host_evaluation import evaluate_on_host
from perdure.nnx.metrics import LoggingLevel, Metrics
from perdure.nnx.ppo import FINITE
from perdure.nnx.state import evaluation_key

_EVAL = "eval/"


@dataclass(frozen=True)
class Watched:
    """The networks after an iteration, as compiled functions take them."""

    graphdef: nnx.GraphDef[Any]
    """Their structure."""
    states: tuple[nnx.State, ...]
    """Their variables."""
    before: int
    """Env-steps before the iteration."""
    steps: int
    """Env-steps after it."""


def measure(
    eval_env: Environment | HostEnvironments, config: TrainConfig, scalars: Metrics, watched: Watched, started: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """An iteration's metrics as plain numbers, those of an evaluation included if one is due.

    The transfer is the iteration's only wait for the device; with `LoggingLevel.THROUGHPUT`, an evaluation has its own.

    Args:
        eval_env: To evaluate in.
        config: Whether to evaluate, and how.
        scalars: The iteration's metrics, perhaps still under computation.
        watched: What to evaluate.
        started: When the iteration began, by `time.perf_counter`.

    Returns:
        The metrics; and the rates, which depend on the clock, if `config.ppo.logging_level` asks for them.

    Raises:
        FloatingPointError: If a loss or a parameter is NaN or infinite.
    """
    timed = LoggingLevel.THROUGHPUT in config.ppo.logging_level
    evaluates = config.eval.fires(watched.before, watched.steps)
    if not timed:
        metrics = _to_numbers(scalars | _evaluation(eval_env, config, watched) if evaluates else scalars)
        return _checked(metrics, watched.steps), {}
    metrics = _checked(_to_numbers(scalars), watched.steps)
    rates = {"throughput/train_sps": config.ppo.steps_per_iteration / (time.perf_counter() - started)}
    if evaluates:
        started = time.perf_counter()
        found = _to_numbers(_evaluation(eval_env, config, watched))
        steps = found[f"{_EVAL}lifespan_mean"] * config.eval.n_envs
        rates["throughput/eval_sps"] = steps / (time.perf_counter() - started)
        metrics |= found
    return metrics, rates


def _to_numbers(scalars: Metrics) -> dict[str, Any]:
    return {name: value.item() for name, value in jax.device_get(scalars).items()}


def _checked(metrics: dict[str, Any], env_steps: int) -> dict[str, Any]:
    """The metrics, if losses and parameters are numbers; otherwise the training is lost, and must not be saved."""
    if metrics.pop(FINITE):
        return metrics
    broken = [
        f"{name} is {value}"
        for name, value in metrics.items()
        if name.startswith("losses/") and not math.isfinite(value)
    ]
    named = ", ".join(broken) or "a loss or a parameter is not finite"
    raise FloatingPointError(
        f"env_steps={env_steps}: {named}; expected finite numbers. Nothing was saved after that: the run's last "
        "checkpoint is from before. Look for rewards or observations that are no numbers, or go on from the last "
        "checkpoint with a smaller learning rate or with gradient_clipping."
    )


def _evaluation(env: Environment | HostEnvironments, config: TrainConfig, watched: Watched) -> Metrics:
    key = evaluation_key(config.seed, watched.steps)
    options = config.eval
    sizes = (options.n_envs, options.max_episode_length, options.logging_percentiles)
    if isinstance(env, HostEnvironments):
        found = evaluate_on_host(env, watched.graphdef, watched.states, *sizes, key)
    else:
        found = evaluate(env, watched.graphdef, watched.states, *sizes, key)
    return {f"{_EVAL}{name}": value for name, value in found.items()}


def evaluation_in(metrics: dict[str, Any], steps: int) -> dict[str, Any] | None:
    """The entry of the evaluation history that an iteration's metrics hold; None if there was no evaluation."""
    found = {name.removeprefix(_EVAL): value for name, value in metrics.items() if name.startswith(_EVAL)}
    return {"step": steps, **found} if found else None
