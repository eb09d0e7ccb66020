"""The loop: evaluation leaves no trace, a resume changes no bit, everything compiles once, and it learns."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    CategoricalSampler,
    EvalConfig,
    PPOAdapter,
    PPOConfig,
    Sequential,
    TrainConfig,
    make_mlp_actor_critic,
    make_mlp_layers,
    new_training_state,
    ppo_step,
    train_ppo,
)
from perdure.nnx.envs.gymnax import GymnaxEnvironment
from perdure.nnx.evaluation import evaluate
from perdure.nnx.ppo import _iterate, minibatch_rows

CARTPOLE = GymnaxEnvironment("CartPole-v1")


class Stop(Exception):
    """Raised by a log function, in place of a kill."""


def cache_size(compiled: Any) -> int:
    return compiled._cache_size()


def stop_at(steps: int):
    def log(metrics: dict, now: int) -> None:
        if now == steps:
            raise Stop

    return log


def test_counts_history_and_logs_are_those_of_the_loop(toys):
    logged = []
    config = toys.small_config()
    result = train_ppo(
        CARTPOLE, toys.small_networks(CARTPOLE), config, log_fn=lambda metrics, steps: logged.append((steps, metrics))
    )

    assert (result.total_steps, result.total_iterations, result.training_state.steps_taken) == (128, 4, 128)
    assert [steps for steps, _ in logged] == [32, 64, 96, 128]
    assert [entry["step"] for entry in result.eval_history] == [64, 128]
    assert result.final_metrics == logged[-1][1]
    assert result.eval_history[-1]["episode_reward_mean"] == logged[-1][1]["eval/episode_reward_mean"]
    assert all(type(value) in (int, float) for value in result.final_metrics.values())
    normalizer = result.training_state.networks.layers[0]  # pyright: ignore[reportAttributeAccessIssue]
    assert normalizer.count() == 128
    assert int(result.training_state.optimizer.step[...]) == 4 * 2 * 2


def test_evaluating_at_every_iteration_leaves_every_bit_of_the_training(toys):
    states = []
    for evaluation in (EvalConfig(enabled=False), EvalConfig(every_steps=1, n_envs=3, max_episode_length=50)):
        config = dataclasses.replace(toys.small_config(), eval=evaluation)
        result = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config)
        states.append(toys.leaves_of_state(result.training_state))

    assert len(result.eval_history) == 4
    assert states[0] == states[1]


def test_another_seed_is_noticed_by_that_comparison(toys):
    config = toys.small_config()
    states = [
        toys.leaves_of_state(train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config, seed=seed).training_state)
        for seed in (0, 1)
    ]

    assert states[0].keys() == states[1].keys()
    assert states[0] != states[1]


def test_a_stopped_run_resumes_bit_for_bit(toys, tmp_path):
    config = toys.small_config(checkpoint_every_steps=32)
    straight = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config, run=tmp_path / "straight")
    for steps in (96, 128):
        with pytest.raises(Stop):
            train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config, run=tmp_path / "stopped", log_fn=stop_at(steps))
    resumed = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE, seed=5), config, run=tmp_path / "stopped")

    assert toys.leaves_of_state(resumed.training_state) == toys.leaves_of_state(straight.training_state)
    assert resumed.eval_history == straight.eval_history
    assert resumed.final_metrics == straight.final_metrics
    assert resumed.total_iterations == straight.total_iterations
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("straight", "stopped")]
    assert rows[0] == rows[1]


def test_a_finished_run_returns_at_once(toys, tmp_path):
    config = toys.small_config()
    first = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config, run=tmp_path / "run")
    again = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE, seed=5), config, run=tmp_path / "run", log_fn=stop_at(32))

    assert toys.leaves_of_state(again.training_state) == toys.leaves_of_state(first.training_state)
    assert (again.eval_history, again.final_metrics) == (first.eval_history, first.final_metrics)
    assert (again.total_steps, again.total_iterations) == (128, 4)


def test_nothing_compiles_after_the_first_iteration_not_even_after_a_resume(toys, tmp_path):
    config = dataclasses.replace(
        toys.small_config(checkpoint_every_steps=32), ppo=PPOConfig(n_envs=2, rollout_length=4, n_minibatches=1)
    )
    counts = []

    def log(metrics: dict, steps: int) -> None:
        counts.append((cache_size(_iterate), cache_size(evaluate)))

    for total_steps in (64, 128):
        networks = toys.small_networks(CARTPOLE, seed=total_steps)
        train_ppo(CARTPOLE, networks, config, total_steps=total_steps, log_fn=log, run=tmp_path / str(total_steps))
    with pytest.raises(Stop):
        train_ppo(
            CARTPOLE, toys.small_networks(CARTPOLE), config, total_steps=192, run=tmp_path / "r", log_fn=stop_at(96)
        )
    train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config, total_steps=192, run=tmp_path / "r", log_fn=log)

    assert len({training for training, _ in counts}) == 1
    assert len({evaluation for _, evaluation in counts[8:]}) == 1


def test_an_iteration_waits_for_the_device_once(toys, monkeypatch):
    transfers = []
    monkeypatch.setattr(jax, "device_get", lambda tree, get=jax.device_get: (transfers.append(1), get(tree))[1])
    train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), toys.small_config())

    assert len(transfers) == 4


def test_ppo_step_is_the_loops_iteration_and_leaves_the_values_it_was_given(toys):
    config = toys.small_config()
    ppo = config.ppo
    expected = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config).training_state

    state = new_training_state(CARTPOLE, toys.small_networks(CARTPOLE), ppo.n_envs, config.seed, ppo.learning_rate)
    first, before = state, toys.leaves_of((state.env_states, state.rng_key))
    metrics = {}
    for _ in range(4):
        state, metrics = ppo_step(CARTPOLE, state, ppo)

    assert toys.leaves_of_state(state) == toys.leaves_of_state(expected)
    assert toys.leaves_of((first.env_states, first.rng_key)) == before
    assert {"losses/actor/mean", "losses/critic/std"} <= metrics.keys()


def test_training_goes_on_from_a_given_state(toys):
    config = toys.small_config()
    straight = train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), config)
    networks = toys.small_networks(CARTPOLE)
    half = train_ppo(CARTPOLE, networks, config, total_steps=64)
    whole = train_ppo(CARTPOLE, networks, config, initial_state=half.training_state)

    assert toys.leaves_of_state(whole.training_state) == toys.leaves_of_state(straight.training_state)


def test_a_state_that_does_not_fit_is_refused(toys):
    networks = toys.small_networks(CARTPOLE)
    state = new_training_state(CARTPOLE, networks, 6, 0, 1e-3)

    with pytest.raises(ValueError, match=r"initial_state holds 6 environments, config.ppo.n_envs is 4"):
        train_ppo(CARTPOLE, networks, toys.small_config(), initial_state=state)
    with pytest.raises(ValueError, match=r"initial_state.networks is not the networks given"):
        train_ppo(CARTPOLE, toys.small_networks(CARTPOLE), toys.small_config(), initial_state=state)


def test_each_epoch_deals_every_environment_once():
    rows = minibatch_rows(jax.random.key(0), PPOConfig(n_envs=12, n_minibatches=3, n_epochs=2))

    assert rows.shape == (6, 4)
    epochs = np.asarray(rows).reshape(2, 12)
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()


@pytest.mark.full
def test_a_recurrent_network_trains(toys):
    rngs = nnx.Rngs(0)
    actor = Sequential([toys.Memory(1), *make_mlp_layers([1, 2], rngs), CategoricalSampler(rngs)])
    networks = PPOAdapter(action=actor, value=Sequential(make_mlp_layers([1, 1], rngs)))
    before = toys.leaves_of(nnx.state(networks, nnx.Param))
    config = dataclasses.replace(toys.small_config(), eval=EvalConfig(enabled=False))
    result = train_ppo(toys.Counting(truncates=True), networks, config)
    after = toys.leaves_of(nnx.state(networks, nnx.Param))

    assert [path for path in before if before[path] == after[path]] == [], "every parameter is reached"
    assert np.isfinite(list(result.final_metrics.values())).all()


@pytest.mark.full
def test_pendulum_trains_with_the_tanh_normal_sampler(toys):
    env = GymnaxEnvironment("Pendulum-v1")
    result = train_ppo(env, toys.small_networks(env), toys.small_config())

    assert np.isfinite(list(result.final_metrics.values())).all()
    assert -3000 < result.final_metrics["eval/episode_reward_mean"] < 0


def cartpole(total_steps: int, seed: int) -> list[float]:
    """Evaluations of the settings that the demo uses."""
    config = TrainConfig(
        ppo=PPOConfig(
            n_envs=64,
            rollout_length=32,
            total_steps=total_steps,
            learning_rate=1e-3,
            n_epochs=10,
            n_minibatches=8,
            gradient_clipping=0.5,
            critic_loss_weight=0.5,
        ),
        eval=EvalConfig(every_steps=8192, n_envs=100, max_episode_length=500),
        seed=seed,
    )
    networks = make_mlp_actor_critic(
        4, 2, [64, 64], [64, 64], nnx.Rngs(seed), activation="tanh", action_kind="discrete"
    )
    result = train_ppo(CARTPOLE, networks, config)
    return [entry["episode_reward_mean"] for entry in result.eval_history]


@pytest.mark.full
def test_cartpole_is_being_learned():
    assert cartpole(16_384, seed=0)[-1] > 100.0, "a random policy falls after about 20 steps"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_cartpole_is_solved(seed):
    """By the mean of 100 episodes. A later evaluation may be worse: the step size is constant."""
    assert max(cartpole(98_304, seed)) >= 475.0
