"""What is measured while training: groups of metrics to choose from, and the statistics that stand for an array."""

import enum
from typing import Any

import jax
import jax.numpy as jnp

Metrics = dict[str, jax.Array]
"""Scalars by name; parts of a name are joined by slashes."""


class LoggingLevel(enum.Flag):
    """Groups of metrics. They are measured beside the training and change no bit of it."""

    LOSSES = enum.auto()
    """`losses/actor`, `losses/critic`, `losses/regularization`, over the updates of an iteration."""
    CRITIC_EXTRA = enum.auto()
    """`losses/advantages`, `losses/predicted_value` and `losses/critic_R^2`, the share of variance explained."""
    ACTOR_EXTRA = enum.auto()
    """`losses/clipping_fraction`, `losses/approximate_kl` and `loglikelihood`."""
    TRAIN_ROLLOUT_STATS = enum.auto()
    """`rollout_batch/reward`, `/action`, `/done_rate` and `/truncation_rate`."""
    ROLLOUT_OBS = enum.auto()
    """`rollout_batch/obs`."""
    TRAINING_ENV_METRICS = enum.auto()
    """`env/…`, the metrics of the environments, and `net/…`, those of the networks."""
    GRAD_NORM = enum.auto()
    """`grad_norm`, before clipping."""
    WEIGHTS = enum.auto()
    """`weights`, over all parameters."""
    THROUGHPUT = enum.auto()
    """`throughput/train_sps` and `throughput/eval_sps`, env-steps a second. They go to `log_fn` alone: wall-clock
    time is no part of a run's metrics, which are the same for every run of one seed."""
    BASIC = LOSSES
    ALL = (
        LOSSES
        | CRITIC_EXTRA
        | ACTOR_EXTRA
        | TRAIN_ROLLOUT_STATS
        | ROLLOUT_OBS
        | TRAINING_ENV_METRICS
        | GRAD_NORM
        | WEIGHTS
        | THROUGHPUT
    )
    NONE = 0


Percentiles = tuple[int, ...] | None
"""Percentiles, 0 to 100, that stand for an array; None or none of them: its mean and standard deviation."""


def statistics(name: str, values: Any, percentiles: Percentiles) -> Metrics:
    """The scalars that stand for arrays.

    Args:
        name: Of the metric.
        values: An array of any shape, or a pytree of arrays, whose paths are put behind the name.
        percentiles: Which ones; see `Percentiles`.

    Returns:
        `<name>/mean` and `<name>/std`, or `<name>/p<level>` for each percentile; of bools, the share that is true,
        under the name itself.
    """
    found: Metrics = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        whole = "/".join([name, *([jax.tree_util.keystr(path, simple=True, separator="/")] if path else [])])
        found |= _of_array(whole, jnp.asarray(leaf), percentiles)
    return found


def _of_array(name: str, array: jax.Array, percentiles: Percentiles) -> Metrics:
    if array.dtype == jnp.bool_:
        return {name: jnp.mean(array, dtype=jnp.float32)}
    array = array.astype(jnp.float32)
    if not percentiles:
        return {f"{name}/mean": jnp.mean(array), f"{name}/std": jnp.std(array)}
    levels = jnp.percentile(array, jnp.array(percentiles, jnp.float32))
    return {f"{name}/p{level}": value for level, value in zip(percentiles, levels, strict=True)}
