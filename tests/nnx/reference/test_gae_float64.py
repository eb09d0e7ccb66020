"""Advantages equal the textbook's double sum in float64, whatever ends where; `test_gae.py` has the simple cases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from perdure.nnx import gae

pytestmark = pytest.mark.jax

T, B = 7, 3
JITTED = jax.jit(gae)


def double_loop(rewards, values, final_values, terminated, truncated, lam, gamma) -> np.ndarray:
    """Sums of discounted errors, one start after the other; all that is known are the values of what follows.

    `final_values[t]` is the value of the observation after step t, before any reset.
    """
    advantages = np.zeros((T, B))
    for env in range(B):
        for start in range(T):
            weight, t = 1.0, start
            while True:
                after = 0.0 if terminated[t, env] else final_values[t, env]
                advantages[start, env] += weight * (rewards[t, env] + gamma * after - values[t, env])
                if terminated[t, env] or truncated[t, env] or t == T - 1:
                    break
                weight, t = weight * gamma * lam, t + 1
    return advantages


def case(rewards, values, last, terminated, truncated) -> tuple[np.ndarray, np.ndarray]:
    """The value after each step, and the bootstrap values that a rollout would hold of them."""
    goes_on = ~(terminated | truncated)
    following = np.concatenate([values[1:], last[-1:]])
    final_values = np.where(goes_on, following, last)
    at_the_end = (np.arange(T) == T - 1)[:, None]
    bootstrap = np.where((truncated | at_the_end) & ~terminated, final_values, 0.0)
    return final_values, bootstrap


def numbers(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float32, (T, B), elements=st.floats(low, high, width=32))


def flags() -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.bool_, (T, B))


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(
    rewards=numbers(-10, 10),
    values=numbers(-10, 10),
    last=numbers(-10, 10),
    terminated=flags(),
    truncated=flags(),
    lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
)
def test_advantages_equal_the_double_sum(rewards, values, last, terminated, truncated, lam, gamma):
    truncated = truncated & ~terminated
    final_values, bootstrap = case(rewards, values, last, terminated, truncated)
    found = JITTED(rewards, values, terminated | truncated, bootstrap.astype(np.float32), lam, gamma)

    r, v, f = (array.astype(np.float64) for array in (rewards, values, final_values))
    expected = double_loop(r, v, f, terminated, truncated, lam, gamma)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-4)


def test_what_lies_beyond_an_end_does_not_matter():
    """However large: the values of the next episode never leak into the one before."""
    rng = np.random.default_rng(0)
    rewards, values, last = rng.normal(size=(3, T, B)).astype(np.float32)
    done = np.zeros((T, B), bool)
    done[3] = True
    beyond = values.copy()
    beyond[4:] = 1e30

    first, second = (np.asarray(JITTED(rewards, v, done, last, 0.9, 0.9)) for v in (values, beyond))
    np.testing.assert_array_equal(first[:4], second[:4])
    assert (np.abs(second[4:]) > 1e29).any(axis=0).all()


def test_a_long_constant_reward_sums_to_its_geometric_series():
    """1,000 steps of reward 1, values 0, lambda 1: at the start (1 - gamma^1000) / (1 - gamma)."""
    ones, zeros = jnp.ones((1000, 1)), jnp.zeros((1000, 1))
    found = gae(ones, zeros, zeros.astype(bool), zeros, 1.0, 0.99)

    assert float(found[0, 0]) == pytest.approx((1 - 0.99**1000) / (1 - 0.99), rel=1e-5)
