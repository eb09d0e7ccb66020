"""LSTM and Delay: carries that start anew with each episode; checked against cells written out by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import LSTM, Delay
from perdure.nnx.rollout import reset_carries

pytestmark = pytest.mark.jax


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("use_optimized", [True, False])
def test_an_lstm_step_is_the_textbook_s(use_optimized: bool):
    """i, f, g, o by their own kernels; c' = f c + i g; h' = o tanh c'."""
    module = LSTM(3, 2, nnx.Rngs(0), use_optimized=use_optimized)
    c, h, x = (np.random.default_rng(seed).normal(size=(4, size)) for seed, size in ((0, 2), (1, 2), (2, 3)))
    cell: Any = module.cell
    if use_optimized:
        gates = x @ np.asarray(cell.dense_i.kernel[...]) + h @ np.asarray(cell.dense_h.kernel[...])
        gates = gates + np.asarray(cell.dense_h.bias[...])
        i, f, g, o = np.split(gates, 4, axis=-1)
    else:
        i, f, g, o = (
            x @ np.asarray(getattr(cell, "if_" if n == "f" else f"i{n}").kernel[...])
            + h @ np.asarray(getattr(cell, f"h{n}").kernel[...])
            + np.asarray(getattr(cell, f"h{n}").bias[...])
            for n in "ifgo"
        )
    expected_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)

    result = module((jnp.asarray(c), jnp.asarray(h)), jnp.asarray(x))

    np.testing.assert_allclose(result.next_state[0], expected_c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.output, sigmoid(o) * np.tanh(expected_c), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result.output, result.next_state[1])


@pytest.mark.parametrize("trainable", [True, False])
def test_the_carry_starts_anew_where_an_episode_ended_and_nowhere_else(trainable: bool):
    module = LSTM(1, 2, nnx.Rngs(0), trainable_initial_state=trainable)
    if trainable:
        module.initial_c[...], module.initial_h[...] = jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])
    start = module.initialize_state(3)
    carry = module(start, jnp.ones((3, 1))).next_state

    after = reset_carries(module, jnp.array([False, True, False]), carry)

    for part, begun, before in zip(after, start, carry, strict=True):
        np.testing.assert_array_equal(part[1], begun[1])
        np.testing.assert_array_equal(part[jnp.array([0, 2])], before[jnp.array([0, 2])])
        assert not np.array_equal(begun[0], before[0])


def test_a_trainable_start_gets_a_gradient_through_a_reset():
    module = LSTM(1, 2, nnx.Rngs(0), trainable_initial_state=True)
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def loss(params: nnx.State) -> jax.Array:
        merged = nnx.merge(graph, params, rest)
        carry = merged.reset_state((jnp.ones(2), jnp.ones(2)))
        return jnp.sum(merged(jax.tree.map(lambda leaf: leaf[None], carry), jnp.ones((1, 1))).output)

    gradient = jax.grad(loss)(params)

    assert float(jnp.abs(gradient["initial_c"][...]).min()) > 0


def test_an_input_of_another_size_is_named():
    module = LSTM(3, 2, nnx.Rngs(0))
    carry = module.initialize_state(4)

    with pytest.raises(ValueError, match=r"^LSTM\(3, 2\) got an input of shape \(4, 5\), whose last axis is not 3\."):
        module(carry, jnp.ones((4, 5)))


@pytest.mark.parametrize("k_steps", [1, 2, 5])
def test_a_delay_puts_out_what_came_in_k_steps_ago(k_steps: int):
    module = Delay({"a": jnp.zeros(2), "b": jnp.zeros((), jnp.int32)}, k_steps, initial_value=-1)
    state = module.initialize_state(3)
    inputs = [{"a": jnp.full((3, 2), float(t)), "b": jnp.full((3,), t, jnp.int32)} for t in range(8)]
    outputs = []
    for given in inputs:
        result = module(state, given)
        state = result.next_state
        outputs.append(result.output)

    for t, output in enumerate(outputs):
        expected = t - k_steps if t >= k_steps else -1
        np.testing.assert_array_equal(output["a"], np.full((3, 2), float(expected)))
        np.testing.assert_array_equal(output["b"], np.full(3, expected))
    assert outputs[0]["b"].dtype == jnp.int32


def test_a_delay_forgets_at_the_end_of_an_episode_in_that_environment_alone():
    module = Delay(jnp.zeros(()), 2)
    state = module.initialize_state(2)
    for t in (1.0, 2.0, 3.0):
        state = module(state, jnp.full((2,), t)).next_state

    state = reset_carries(module, jnp.array([True, False]), state)
    outputs = []
    for t in (4.0, 5.0, 6.0):
        result = module(state, jnp.full((2,), t))
        state = result.next_state
        outputs.append(result.output.tolist())

    assert outputs == [[0.0, 2.0], [0.0, 3.0], [4.0, 4.0]]


def test_a_delay_of_nothing_is_refused():
    with pytest.raises(ValueError, match="k_steps must be at least 1, got 0"):
        Delay(jnp.zeros(1), 0)
