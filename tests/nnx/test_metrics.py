"""Each group of metrics holds what it says, the statistics are NumPy's, and measuring changes no bit."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import LoggingLevel, train_ppo
from perdure.nnx.envs.gymnax import GymnaxEnvironment
from perdure.nnx.metrics import statistics

CARTPOLE = GymnaxEnvironment("CartPole-v1")
GROUPS = {
    LoggingLevel.LOSSES: {"losses/actor/mean", "losses/critic/std", "losses/regularization/mean"},
    LoggingLevel.CRITIC_EXTRA: {"losses/advantages/mean", "losses/predicted_value/std", "losses/critic_R^2/mean"},
    LoggingLevel.ACTOR_EXTRA: {"losses/clipping_fraction", "losses/approximate_kl/mean", "loglikelihood/std"},
    LoggingLevel.TRAIN_ROLLOUT_STATS: {
        "rollout_batch/reward/mean",
        "rollout_batch/action/std",
        "rollout_batch/done_rate",
        "rollout_batch/truncation_rate",
    },
    LoggingLevel.ROLLOUT_OBS: {"rollout_batch/obs/mean"},
    LoggingLevel.TRAINING_ENV_METRICS: {"net/1/action/2/entropy/mean"},
    LoggingLevel.GRAD_NORM: {"grad_norm/mean", "grad_norm/std"},
    LoggingLevel.WEIGHTS: {"weights/mean", "weights/std"},
    LoggingLevel.THROUGHPUT: {"throughput/train_sps"},
    LoggingLevel.NONE: set(),
}


@pytest.mark.full
@pytest.mark.parametrize("level", [*GROUPS, LoggingLevel.ALL], ids=lambda level: level.name)
def test_a_level_measures_its_groups_and_nothing_else(toys, level):
    result, logged = train(toys, level)

    expected = set().union(*(names for group, names in GROUPS.items() if group in level and group))
    others = set().union(*(names for group, names in GROUPS.items() if group not in level)) - expected
    assert expected <= logged[-1].keys()
    assert not others & logged[-1].keys()
    assert all(np.isfinite(value) for value in logged[-1].values())
    if level is LoggingLevel.NONE:
        assert result.final_metrics == logged[-1] == {"total_steps": 64}


def train(toys, level, percentiles=None, run=None):
    logged = []
    config = toys.small_config()
    ppo = dataclasses.replace(config.ppo, logging_level=level, logging_percentiles=percentiles, total_steps=64)
    config = dataclasses.replace(config, ppo=ppo, eval=dataclasses.replace(config.eval, enabled=False))
    networks = toys.small_networks(CARTPOLE)
    return train_ppo(CARTPOLE, networks, config, log_fn=lambda row, _: logged.append(row), run=run), logged


@pytest.mark.full
def test_measuring_everything_changes_no_bit(toys):
    states = [
        toys.leaves_of_state(train(toys, level)[0].training_state) for level in (LoggingLevel.NONE, LoggingLevel.ALL)
    ]

    assert states[0] == states[1]


def test_weights_and_rewards_are_the_ones_in_the_state(toys):
    result, logged = train(toys, LoggingLevel.WEIGHTS | LoggingLevel.TRAIN_ROLLOUT_STATS, (0, 50, 100))
    leaves = [np.ravel(leaf) for leaf in nnx.to_flat_state(nnx.state(result.training_state.networks, nnx.Param)).leaves]
    weights = np.concatenate(leaves)

    for level in (0, 50, 100):
        assert logged[-1][f"weights/p{level}"] == pytest.approx(np.percentile(weights, level), abs=1e-6)
    assert logged[-1]["rollout_batch/reward/p50"] == 1.0


def test_rates_are_logged_but_are_no_part_of_a_runs_metrics(toys, tmp_path):
    import perdure

    result, logged = train(toys, LoggingLevel.ALL, run=tmp_path / "run")

    assert logged[-1]["throughput/train_sps"] > 0
    rows = perdure.Run(tmp_path / "run").metrics_rows()
    assert not any(name.startswith("throughput") for row in rows for name in row)
    assert "throughput/train_sps" not in result.final_metrics


def test_statistics_are_those_of_numpy():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(7, 5)).astype(np.float32)
    found = statistics("x", {"a": values, "b": {"c": values > 0}}, None)

    assert found.keys() == {"x/a/mean", "x/a/std", "x/b/c"}
    assert float(found["x/a/mean"]) == pytest.approx(values.mean(), abs=1e-6)
    assert float(found["x/a/std"]) == pytest.approx(values.std(), abs=1e-6)
    assert float(found["x/b/c"]) == pytest.approx((values > 0).mean())
    levels = statistics("x", values, (5, 95))
    assert {name: float(value) for name, value in levels.items()} == pytest.approx(
        {"x/p5": np.percentile(values, 5), "x/p95": np.percentile(values, 95)}, abs=1e-6
    )
    assert float(statistics("n", jnp.arange(4), ())["n/mean"]) == 1.5
