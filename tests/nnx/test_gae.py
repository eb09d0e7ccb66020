"""Advantages equal the textbook sum, written as a double loop."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from perdure.nnx import gae


def double_loop(rewards, values, done, bootstrap_values, lam, gamma) -> np.ndarray:
    """A_t = sum over k of (gamma * lambda)^k * delta_(t+k), up to the end of the episode or the data."""
    length, batch = rewards.shape
    advantages = np.zeros_like(rewards)
    for env in range(batch):
        for start in range(length):
            weight = 1.0
            for t in range(start, length):
                ends = done[t, env] or t == length - 1
                following = bootstrap_values[t, env] if ends else values[t + 1, env]
                advantages[start, env] += weight * (rewards[t, env] + gamma * following - values[t, env])
                if ends:
                    break
                weight *= gamma * lam
    return advantages


@pytest.mark.parametrize(("lam", "gamma"), [(0.95, 0.99), (0.0, 0.9), (1.0, 1.0)])
def test_advantages_equal_the_double_loop(lam, gamma):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 12, 5))
    done = rng.random((12, 5)) < 0.3
    truncated = done & (rng.random((12, 5)) < 0.5)
    last_and_open = (np.arange(12) == 11)[:, None] & ~done
    bootstrap = np.where(truncated | last_and_open, rng.normal(size=(12, 5)), 0.0)
    assert truncated.any(), "the case is exercised"
    assert (done & ~truncated).any(), "the case is exercised"

    r_t, v_t, b_t = (jnp.asarray(array, jnp.float32) for array in (rewards, values, bootstrap))
    found = gae(r_t, v_t, jnp.asarray(done), b_t, lam, gamma)

    np.testing.assert_allclose(found, double_loop(rewards, values, done, bootstrap, lam, gamma), rtol=2e-5, atol=2e-5)


def test_a_truncation_is_worth_its_final_observation_and_a_termination_nothing():
    zeros, done = jnp.zeros((1, 2)), jnp.array([[True, True]])
    found = gae(zeros, zeros, done, jnp.array([[7.0, 0.0]]), 0.95, 0.5)

    assert found.tolist() == [[3.5, 0.0]]
