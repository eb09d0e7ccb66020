"""Variational bottlenecks: divergences against scipy-free references, noise that the loss can repeat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import AR1VariationalBottleneck, VariationalBottleneck
from perdure.nnx.rollout import reset_carries

pytestmark = pytest.mark.jax


def inputs(batch: int = 4, latent: int = 3) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (batch, 2 * latent))


def test_the_divergence_is_that_of_two_normals_by_integration():
    x = inputs(1, 1)
    mean, std = float(x[0, 0]), float(np.log1p(np.exp(float(x[0, 1]))))
    grid = np.linspace(mean - 12 * std, mean + 12 * std, 200_001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    log_ratio = -0.5 * ((grid - mean) / std) ** 2 - np.log(std) + 0.5 * grid**2
    expected = float(np.sum(density * log_ratio) * (grid[1] - grid[0]))

    module = VariationalBottleneck(1, nnx.Rngs(0), kl_weight=0.5, min_std=0.0)
    result = module(module.initialize_state(1), x)

    assert float(result.metrics["kl_divergence"][0]) == pytest.approx(expected, rel=1e-4)
    assert float(result.regularization_loss[0]) == pytest.approx(0.5 * expected, rel=1e-4)


def test_the_same_carry_draws_the_same_noise_and_the_next_another():
    """The loss replays a rollout from its first carry: it must see the noise that was acted on."""
    module = VariationalBottleneck(3, nnx.Rngs(0))
    start = module.initialize_state(4)
    first, again = module(start, inputs()), module(start, inputs())
    later = module(first.next_state, inputs())

    np.testing.assert_array_equal(first.output, again.output)
    assert not np.array_equal(first.output, later.output)
    assert len({row.tobytes() for row in np.asarray(first.output - inputs()[:, :3])}) == 4  # each row its own


def test_the_noise_is_standard_normal():
    module = VariationalBottleneck(2, nnx.Rngs(0), min_std=0.0)
    x = jnp.tile(jnp.array([[1.0, -1.0, 0.5, 2.0]]), (20_000, 1))
    z = np.asarray(module(module.initialize_state(20_000), x).output)
    std = np.log1p(np.exp([0.5, 2.0]))

    np.testing.assert_allclose(z.mean(axis=0), [1.0, -1.0], atol=0.05)
    np.testing.assert_allclose(z.std(axis=0), std, rtol=0.03)


def test_evaluation_puts_out_the_mean():
    module = VariationalBottleneck(3, nnx.Rngs(0))
    module.eval()

    np.testing.assert_array_equal(module(module.initialize_state(4), inputs()).output, inputs()[:, :3])


def test_the_first_latent_of_an_episode_costs_nothing_and_later_changes_do():
    module = AR1VariationalBottleneck(3, nnx.Rngs(0), kl_weight=0.0, ar1_weight=2.0)
    first = module(module.initialize_state(4), inputs())
    second = module(first.next_state, 2 * inputs())
    change = np.mean((np.asarray(second.output) - np.asarray(first.output)) ** 2, axis=-1)

    np.testing.assert_array_equal(first.regularization_loss, np.zeros(4))
    np.testing.assert_allclose(second.regularization_loss, 2.0 * change, rtol=1e-6)
    begun = reset_carries(module, jnp.array([True, False, False, False]), second.next_state)
    third = module(begun, inputs())
    assert float(third.regularization_loss[0]) == 0.0
    assert float(third.regularization_loss[1]) > 0.0


@pytest.mark.parametrize("through_time", [True, False])
def test_gradients_are_finite_at_the_start_and_flow_back_only_if_told(through_time: bool):
    module = AR1VariationalBottleneck(1, nnx.Rngs(0), kl_weight=0.0, backprop_through_time=through_time)
    start = module.initialize_state(1)

    def loss(x: jax.Array) -> jax.Array:
        first = module(start, x[None, :2])
        return jnp.sum(module(first.next_state, x[None, 2:]).regularization_loss)

    gradient = np.asarray(jax.grad(loss)(jnp.array([1.0, 0.0, 2.0, 0.0])))

    assert np.isfinite(gradient).all()
    assert (gradient[:2] != 0).any() == through_time
    assert (gradient[2:] != 0).all()


def test_an_input_of_another_size_is_named():
    module = VariationalBottleneck(3, nnx.Rngs(0))
    keys = module.initialize_state(2)

    with pytest.raises(ValueError, match=r"^VariationalBottleneck\(3\) got an input of shape \(2, 5\); its last axis"):
        module(keys, jnp.ones((2, 5)))
