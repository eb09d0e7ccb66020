"""Log-likelihoods and entropies equal SciPy's; draws follow the switch and can be repeated from their extras."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import integrate, stats

from perdure.nnx import CategoricalSampler, NormalTanhSampler
from perdure.nnx.networks.samplers import tanh_normal_entropy, tanh_normal_log_prob

LOGITS = jnp.array([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]])
PARAMETERS = jnp.array([[0.3, -1.0, 0.2, 1.5], [4.0, 0.0, -3.0, 0.0]])


def test_the_categorical_likelihood_is_scipys():
    result = CategoricalSampler(nnx.Rngs(0), entropy_weight=0.5)((), LOGITS)
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    probabilities = np.asarray(probabilities, np.float64)
    distributions = [stats.rv_discrete(values=(range(3), p / p.sum())) for p in probabilities]

    action, loglikelihood = result.output
    assert action.dtype == jnp.int32
    expected = [d.logpmf(int(a)) for d, a in zip(distributions, action, strict=True)]
    np.testing.assert_allclose(loglikelihood, expected, rtol=1e-5)
    np.testing.assert_allclose(result.regularization_loss, [-0.5 * d.entropy() for d in distributions], rtol=1e-5)


def squashed_logpdf(action: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return stats.norm.logpdf(np.arctanh(action), mean, std) - np.log1p(-np.square(action))


def test_the_tanh_normal_likelihood_is_scipys():
    sampler = NormalTanhSampler(nnx.Rngs(0), min_std=0.1, std_scale=0.7)
    result = sampler((), PARAMETERS)
    action, loglikelihood = result.output
    mean, spread = np.split(np.float64(PARAMETERS), 2, axis=-1)
    std = (np.log1p(np.exp(spread)) + 0.1) * 0.7

    assert np.all(np.abs(action) < 1)
    np.testing.assert_array_equal(action, jnp.tanh(result.rollout_extras["raw_action"]))
    expected = squashed_logpdf(np.tanh(np.float64(result.rollout_extras["raw_action"])), mean, std).sum(-1)
    np.testing.assert_allclose(loglikelihood, expected, rtol=1e-4)


def test_the_tanh_normal_density_integrates_to_one():
    def density(action: float) -> float:
        raw = jnp.arctanh(jnp.array([action]))
        return float(jnp.exp(tanh_normal_log_prob(raw, jnp.array([0.4]), jnp.array([0.6]))))

    grid = np.linspace(-0.9999, 0.9999, 2001)
    assert integrate.simpson([density(a) for a in grid[::10]], x=grid[::10]) == pytest.approx(1.0, abs=2e-3)


def entropy_by_integration(mean: float, std: float) -> float:
    def integrand(raw: float) -> float:
        log_density = stats.norm.logpdf(raw, mean, std) - 2 * (np.log(2) - abs(raw) - np.log1p(np.exp(-2 * abs(raw))))
        return -stats.norm.pdf(raw, mean, std) * log_density

    return integrate.quad(integrand, mean - 12 * std, mean + 12 * std, points=[0, mean], limit=400, epsabs=1e-9)[0]


ANYWHERE = [(mean, std) for mean in (0.0, 0.7, -2.5, 30.0) for std in (0.01, 0.1, 1.0, 3.0, 20.0)]


@pytest.mark.parametrize(("mean", "std"), ANYWHERE)
def test_the_tanh_normal_entropy_is_the_integral(mean, std):
    found = float(tanh_normal_entropy(jnp.array([mean]), jnp.array([std])))
    assert found == pytest.approx(entropy_by_integration(mean, std), abs=1e-5, rel=1e-6)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.5), (-1.2, 2.0)])
def test_the_tanh_normal_entropy_has_the_slopes_of_the_integral(mean, std):
    found = jax.grad(lambda at: tanh_normal_entropy(at[:1], at[1:]))(jnp.array([mean, std]))
    step = 1e-3
    by_mean = (entropy_by_integration(mean + step, std) - entropy_by_integration(mean - step, std)) / (2 * step)
    by_std = (entropy_by_integration(mean, std + step) - entropy_by_integration(mean, std - step)) / (2 * step)
    np.testing.assert_allclose(found, [by_mean, by_std], atol=1e-3)


def test_saturated_actions_keep_finite_likelihoods_and_gradients():
    def loglikelihood(mean: jax.Array) -> jax.Array:
        return tanh_normal_log_prob(jnp.array([40.0]), mean, jnp.array([1.0]))

    assert np.isfinite(loglikelihood(jnp.array([39.0])))
    assert float(jax.grad(loglikelihood)(jnp.array([39.0]))[0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "parameters", "best"),
    [(CategoricalSampler, LOGITS, [1, 0]), (NormalTanhSampler, PARAMETERS, jnp.tanh(PARAMETERS[:, :2]).tolist())],
)
def test_eval_takes_the_most_likely_action_and_draws_nothing(kind, parameters, best):
    sampler = kind(nnx.Rngs(0))
    sampler.eval()
    assert sampler((), parameters).output.action.tolist() == best
    assert int(sampler.stream.count[...]) == 0
    sampler.train()
    sampler((), parameters)
    assert int(sampler.stream.count[...]) == 1


@pytest.mark.parametrize(("kind", "parameters"), [(CategoricalSampler, LOGITS), (NormalTanhSampler, PARAMETERS)])
def test_the_extras_repeat_the_step_without_a_draw(kind, parameters):
    sampler = kind(nnx.Rngs(0))
    acted = sampler((), parameters)
    replayed = sampler((), parameters, acted.rollout_extras)

    assert int(sampler.stream.count[...]) == 1
    for first, second in zip(jax.tree.leaves(acted), jax.tree.leaves(replayed), strict=True):
        np.testing.assert_array_equal(first, second)
