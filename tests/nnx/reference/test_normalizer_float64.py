"""Running statistics stay those of NumPy in float64: over a million samples, far from zero, at any count."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import Normalizer

pytestmark = pytest.mark.jax


def fed(batches: np.ndarray) -> Normalizer:
    """A normaliser that saw `[n, batch, size]`, batch by batch, in one compiled scan."""
    graphdef, state = nnx.split(Normalizer(batches.shape[-1]))

    def one(state: Any, batch: jax.Array) -> tuple[Any, None]:
        normalizer = nnx.merge(graphdef, state, copy=True)
        normalizer.update_statistics({"input": batch[None]})
        return nnx.state(normalizer), None

    state, _ = jax.jit(lambda state: jax.lax.scan(one, state, jnp.asarray(batches)))(state)
    return nnx.merge(graphdef, state)


@pytest.mark.parametrize("batch", [100, 1000, 100_000])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_million_samples(batch: int, offset: float):
    rng = np.random.default_rng(0)
    scales = np.array([0.1, 1.0, 30.0])
    data = (offset + scales * rng.normal(size=(1_000_000, 3))).astype(np.float32)
    normalizer = fed(data.reshape(-1, batch, 3))

    exact = data.astype(np.float64)
    assert normalizer.count() == 1_000_000
    # A float32 number near 1000 is known to 6e-5; the mean of a batch is one such number.
    np.testing.assert_allclose(normalizer.mean[...], exact.mean(0), rtol=2e-6, atol=1e-4)
    np.testing.assert_allclose(normalizer.variance(), exact.var(0), rtol=5e-4)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_hundred_thousand_tiny_batches(offset: float):
    rng = np.random.default_rng(1)
    data = (offset + rng.normal(size=(100_000, 4, 2))).astype(np.float32)
    normalizer = fed(data)

    exact = data.astype(np.float64).reshape(-1, 2)
    assert normalizer.count() == 400_000
    np.testing.assert_allclose(normalizer.mean[...], exact.mean(0), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(normalizer.variance(), exact.var(0), rtol=1e-3)


def test_a_distribution_that_moves_is_known_in_total():
    """Each batch has a mean of its own: the sum of squares comes from between the batches."""
    rng = np.random.default_rng(2)
    centres = np.linspace(-100, 100, 500)[:, None, None]
    data = (centres + rng.normal(size=(500, 200, 2))).astype(np.float32)
    normalizer = fed(data)

    exact = data.astype(np.float64).reshape(-1, 2)
    np.testing.assert_allclose(normalizer.mean[...], exact.mean(0), atol=1e-3)
    np.testing.assert_allclose(normalizer.variance(), exact.var(0), rtol=1e-5)


@pytest.mark.parametrize("before", [2**24, 2**31 - 3, 2**32 - 3, 2**40 - 3])
def test_updates_count_exactly_across_the_limits_of_words(before: int):
    """Seven samples at a time; float32 would stand still, a 32-bit count would turn over."""
    normalizer = Normalizer(1)
    normalizer.counter[...] = jnp.array([before >> 32, before & 0xFFFF_FFFF], jnp.uint32)
    normalizer.m2[...] = jnp.array([[float(before)], [0.0]])
    for number in range(1, 4):
        normalizer.update_statistics({"input": jnp.ones((1, 7, 1))})
        assert normalizer.count() == before + 7 * number
    assert normalizer.counter[...].dtype == jnp.uint32
    assert float(normalizer.variance()[0]) == pytest.approx(1.0, rel=1e-5)
