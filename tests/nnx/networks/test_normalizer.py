"""Running statistics equal NumPy's over all data, and their count is exact for ever."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from perdure.nnx import Normalizer
from perdure.nnx.networks.normalizer import add_to_count


def test_statistics_equal_those_of_all_data_at_once():
    rng = np.random.default_rng(0)
    batches = [rng.normal(3 + i, 0.1 + i, size=(5, 4, 3)).astype(np.float32) for i in range(6)]
    normalizer = Normalizer(3)
    for batch in batches:
        normalizer.update_statistics({"input": jnp.asarray(batch)})

    data = np.concatenate(batches).reshape(-1, 3).astype(np.float64)
    assert normalizer.count() == len(data)
    np.testing.assert_allclose(normalizer.mean[...], data.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normalizer.variance(), data.var(0), rtol=1e-5)
    observation = jnp.asarray(batches[2][0])
    expected = (observation - data.mean(0)) / data.std(0)
    np.testing.assert_allclose(normalizer((), observation).output, expected, rtol=1e-4, atol=1e-5)


def test_observations_pass_unchanged_before_the_first_update():
    observation = jnp.array([[1.0, -2.0]])

    assert Normalizer(2)((), observation).output.tolist() == observation.tolist()


@pytest.mark.parametrize("before", [0, 2**24, 2**32 - 3, 2**32 - 1, 2**40 + 2**32 - 2])
@pytest.mark.parametrize("added", [1, 3, 2**32 - 1])
def test_the_count_loses_nothing(before, added):
    words = add_to_count(jnp.array([before >> 32, before & 0xFFFFFFFF], jnp.uint32), added)

    assert (int(words[0]) << 32) + int(words[1]) == before + added


def test_a_batch_that_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="a batch of 0 observations cannot be counted"):
        add_to_count(jnp.zeros(2, jnp.uint32), 0)


def test_the_variance_does_not_shrink_when_single_batches_are_below_the_rounding():
    normalizer = Normalizer(1)
    count = 2**36
    normalizer.counter[...] = jnp.array([count >> 32, 0], jnp.uint32)
    normalizer.m2[...] = jnp.array([[float(count)], [0.0]])
    batch = {"input": jnp.tile(jnp.array([-1.0, 1.0]), 500)[None, :, None]}
    for _ in range(10):
        normalizer.update_statistics(batch)

    assert normalizer.count() == count + 10_000
    assert float(normalizer.m2[...][0, 0]) == count, "each batch alone is below the rounding"
    assert float(normalizer.m2[...][1, 0]) == 10_000.0


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"observations of shape \(3,\), but got \(2,\)"):
        Normalizer(3)((), jnp.zeros((1, 2)))
