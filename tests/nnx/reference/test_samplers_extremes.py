"""Log-likelihoods and entropies equal SciPy's in float64 at the ends of what float32 can say."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import special, stats

from perdure.nnx import CategoricalSampler, NormalTanhSampler
from perdure.nnx.networks.samplers import tanh_normal_entropy, tanh_normal_log_prob

pytestmark = pytest.mark.jax


def reference(raw: Any, mean: Any, std: Any) -> np.ndarray:
    """Density of tanh(raw); log(1 - tanh^2) = -2 log cosh, which logaddexp gives without cancellation."""
    raw, mean, std = (np.asarray(x, np.float64) for x in (raw, mean, std))
    log_cosh = np.logaddexp(raw, -raw) - math.log(2)
    return stats.norm.logpdf(raw, mean, std) + 2 * log_cosh


@pytest.mark.parametrize("std", [1e-6, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("raw", [0.0, 1e-4, -3.0, 8.0, -20.0, 300.0])
@pytest.mark.parametrize("deviations", [0.0, -0.7, 5.0])
def test_the_tanh_normal_density_at_the_extremes(raw: float, std: float, deviations: float):
    """Raw 8 is an action of 0.9999998, raw 20 rounds to 1; the density stays that of the unrounded one."""
    raw32, std32 = np.float32(raw), np.float32(std)
    mean32 = np.float32(raw32 - deviations * std32)
    found = float(tanh_normal_log_prob(*(jnp.array([x]) for x in (raw32, mean32, std32))))

    assert found == pytest.approx(float(reference(raw32, mean32, std32)), rel=2e-6, abs=2e-5)


def test_the_density_near_an_action_of_one_is_that_of_the_action():
    """From the action itself, in float64, where it is still below 1."""
    action = np.array([0.9, -0.999, 0.999999, -0.9999999])
    raw = np.arctanh(action)
    expected = stats.norm.logpdf(raw, 1.0, 2.0) - np.log1p(-(action**2))
    found = [float(tanh_normal_log_prob(jnp.array([r]), jnp.array([1.0]), jnp.array([2.0]))) for r in raw]

    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_sampler_with_a_tiny_deviation_says_the_density_of_its_own_draw():
    sampler = NormalTanhSampler(nnx.Rngs(0), min_std=1e-5)
    parameters = jnp.tile(jnp.array([[2.0, -0.5, -30.0, -30.0]]), (500, 1))
    result = sampler((), parameters)
    raw = np.asarray(result.rollout_extras["raw_action"])
    std = np.float64(np.float32(1e-5) + np.float32(special.log1p(np.exp(-30.0))))
    expected = reference(raw, np.array([2.0, -0.5]), std).sum(-1)

    assert (np.abs(raw - [2.0, -0.5]).max(axis=0) < 6e-5).all()
    np.testing.assert_allclose(result.output.loglikelihood, expected, rtol=1e-4)
    gradient = jax.grad(lambda p: sampler((), p, result.rollout_extras).output.loglikelihood.mean())(parameters)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("std", [1e-6, 1e-4, 1e-2])
def test_the_entropy_of_a_narrow_squashed_normal_is_the_normals_and_the_slope(std: float):
    """Where tanh is a line over the normal's width, the entropy is SciPy's Gaussian one plus the log of the slope."""
    for mean in (0.0, 1.5, -6.0):
        expected = stats.norm.entropy(scale=std) - 2 * (np.logaddexp(mean, -mean) - math.log(2))
        found = float(tanh_normal_entropy(jnp.array([mean]), jnp.array([std])))
        assert found == pytest.approx(expected, abs=2 * std**2 + 2e-5)


def test_entropies_of_components_add_up():
    mean, std = jnp.array([[0.1, 2.0, -1.0]]), jnp.array([[0.1, 1.0, 0.5]])
    parts = [float(tanh_normal_entropy(mean[:, i : i + 1], std[:, i : i + 1])[0]) for i in range(3)]

    assert float(tanh_normal_entropy(mean, std)[0]) == pytest.approx(sum(parts), rel=1e-5)


@pytest.mark.parametrize(
    "logits",
    [[0.0, 0.0], [1.0, -2.0, 0.5], [80.0, 0.0, -80.0], [1e4, 0.0, -1e4], [-1e4, -1e4 + 1, -1e4 + 2], [5e8, 0.0]],
)
def test_the_categorical_likelihood_and_entropy_at_the_extremes(logits: list[float]):
    sampler = CategoricalSampler(nnx.Rngs(0), entropy_weight=2.0)
    exact = special.log_softmax(np.asarray(logits, np.float64))
    entropy = stats.entropy(np.exp(exact))
    for action in range(len(logits)):
        extras = {"raw_action": jnp.array([action], jnp.int32)}
        result = sampler((), jnp.array([logits]), extras)
        assert float(result.output.loglikelihood[0]) == pytest.approx(exact[action], rel=1e-6, abs=1e-6)
        assert float(result.metrics["entropy"][0]) == pytest.approx(entropy, rel=1e-5, abs=1e-6)
        assert float(result.regularization_loss[0]) == pytest.approx(-2.0 * entropy, rel=1e-5, abs=1e-6)
