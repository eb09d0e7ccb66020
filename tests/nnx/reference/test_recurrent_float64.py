"""LSTM and Delay over whole rollouts with episode ends equal NumPy's, and the loss replays what the rollout did."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    LSTM,
    CategoricalSampler,
    Delay,
    Dense,
    EpisodeWrapper,
    PPOAdapter,
    Sequential,
    StatefulModuleOutput,
    Transition,
    unroll_env,
)
from perdure.nnx.envs import RecallCue

pytestmark = [pytest.mark.jax, pytest.mark.full]

LENGTH, BATCH = 24, 3
ENV = EpisodeWrapper(RecallCue(cues=3, delay=2, trials=2), 7)
"""Episodes of 8 steps, most of which are cut off before."""


class Shown(Sequential):
    """Keeps its output among the extras, so that a rollout can be looked into; a replay ignores it."""

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        inner = None if rollout_extras is None else rollout_extras["inner"]
        result = super().__call__(module_state, obs, inner)
        extras = {"inner": result.rollout_extras, "output": result.output}
        return StatefulModuleOutput(result.next_state, result.output, rollout_extras=extras)


def networks(memory: Any, size: int) -> PPOAdapter:
    rngs = nnx.Rngs(0)
    actor = Sequential([Shown([memory]), Dense(size, 3, rngs), CategoricalSampler(rngs)])
    return PPOAdapter(action=actor, value=Dense(4, 1, rngs))


def lstm() -> LSTM:
    """With a start that is neither zero nor the same for all parts."""
    module = LSTM(4, 5, nnx.Rngs(1), trainable_initial_state=True)
    module.initial_c[...], module.initial_h[...] = jnp.linspace(-1, 1, 5), jnp.linspace(0.5, 0.1, 5)
    return module


def collected(nets: PPOAdapter) -> tuple[Any, Any, Transition]:
    states = jax.vmap(ENV.reset)(jax.random.split(jax.random.key(1), BATCH))
    start = nets.initialize_state(BATCH)
    after, _, rollout = unroll_env(ENV, states, nets, start, LENGTH, jax.random.key(2))
    done = np.asarray(rollout.done)
    assert done[:-1].any(axis=0).all(), "every environment starts anew"
    assert len({tuple(column) for column in done.T.tolist()}) > 1, "not all of them at once"
    return start, after, rollout


def outputs_of(rollout: Transition) -> np.ndarray:
    return np.asarray(rollout.rollout_extras["action"][0]["output"])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def numpy_lstm(module: LSTM, inputs: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs `[T, B, h]` and the last carry, gate by gate in float64; the carry starts anew after each end."""
    cell: Any = module.cell
    from_x, from_h, bias = (
        np.asarray(v[...], np.float64) for v in (cell.dense_i.kernel, cell.dense_h.kernel, cell.dense_h.bias)
    )
    first_c, first_h = (np.asarray(v[...], np.float64) for v in (module.initial_c, module.initial_h))
    outputs = np.zeros((*done.shape, module.hidden_features))
    last_c, last_h = np.zeros((2, done.shape[1], module.hidden_features))
    for env in range(done.shape[1]):
        c, h = first_c, first_h
        for t in range(done.shape[0]):
            i, f, g, o = np.split(inputs[t, env].astype(np.float64) @ from_x + h @ from_h + bias, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs[t, env] = h
            if done[t, env]:
                c, h = first_c, first_h
        last_c[env], last_h[env] = c, h
    return outputs, last_c, last_h


def test_an_lstm_in_a_rollout_is_numpys():
    module = lstm()
    _, after, rollout = collected(networks(module, 5))
    expected, last_c, last_h = numpy_lstm(module, np.asarray(rollout.obs), np.asarray(rollout.done))

    np.testing.assert_allclose(outputs_of(rollout), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["action"][0][0][0], last_c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["action"][0][0][1], last_h, rtol=1e-4, atol=1e-5)


def test_twin_an_lstm_that_is_not_reset_is_another():
    module = lstm()
    _, _, rollout = collected(networks(module, 5))
    never = np.zeros((LENGTH, BATCH), bool)
    expected, _, _ = numpy_lstm(module, np.asarray(rollout.obs), never)

    assert np.abs(outputs_of(rollout) - expected).max() > 0.05


@pytest.mark.parametrize("k_steps", [1, 3])
def test_a_delay_in_a_rollout_is_a_shifted_copy_of_each_episode(k_steps: int):
    _, _, rollout = collected(networks(Delay(jnp.zeros(4), k_steps, initial_value=-2.0), 4))
    obs, done = np.asarray(rollout.obs), np.asarray(rollout.done)
    expected = np.full((LENGTH, BATCH, 4), -2.0, np.float32)
    for env in range(BATCH):
        begun = 0
        for t in range(LENGTH):
            if t - k_steps >= begun:
                expected[t, env] = obs[t - k_steps, env]
            begun = t + 1 if done[t, env] else begun

    np.testing.assert_array_equal(outputs_of(rollout), expected)


@pytest.mark.parametrize("memory", [lstm, lambda: Delay(jnp.zeros(4), 2)], ids=["lstm", "delay"])
def test_the_loss_replays_the_rollout_step_by_step(memory: Any):
    """The same network, the same carries at the start: the memory's outputs and all likelihoods are the rollout's."""
    module = memory()
    nets = networks(module, 5 if isinstance(module, LSTM) else 4)
    start, _, rollout = collected(nets)
    again = nets.replay(start, rollout.obs, rollout.rollout_extras, rollout.done)

    np.testing.assert_allclose(again.rollout_extras["action"][0]["output"], outputs_of(rollout), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(again.output.loglikelihoods, rollout.loglikelihoods, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(again.output.actions, rollout.rollout_extras["action"][2]["raw_action"])
