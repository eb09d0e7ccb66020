"""The dense layer: an affine map and its derivatives, however they are computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import Dense


@pytest.mark.parametrize("out_features", [1, 4, 16, 17])
def test_values_and_gradients_are_those_of_the_formula(out_features):
    """Narrow and wide kernels take different ways to the same numbers."""
    layer = Dense(5, out_features, nnx.Rngs(0), activation=jnp.tanh)
    obs = jax.random.normal(jax.random.key(1), (2, 7, 5))
    weights = jax.random.normal(jax.random.key(2), (2, 7, out_features))
    found = nnx.grad(lambda module: jnp.sum(weights * module((), obs).output))(layer)

    rows, kernel = np.float64(obs).reshape(-1, 5), np.float64(layer.kernel[...])
    result = np.tanh(rows @ kernel)
    slope = np.float64(weights).reshape(-1, out_features) * (1 - result**2)
    np.testing.assert_allclose(layer((), obs).output.reshape(-1, out_features), result, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.kernel[...], rows.T @ slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.bias[...], slope.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("out_features", [4, 17])
def test_second_derivatives_exist(out_features):
    """Forward over reverse, as for Hessian-vector products."""
    layer = Dense(3, out_features, nnx.Rngs(0), activation=jnp.tanh)
    graph, params = nnx.split(layer)
    obs = jnp.ones((2, 3))

    def gradient(params: nnx.State) -> nnx.State:
        return jax.grad(lambda p: jnp.sum(nnx.merge(graph, p)((), obs).output))(params)

    _, along = jax.jvp(gradient, (params,), (jax.tree.map(jnp.ones_like, params),))
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(along))
