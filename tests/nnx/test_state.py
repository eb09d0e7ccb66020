"""Taking a training state apart into arrays, and writing arrays back into its objects."""

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx import Dense, Sequential, new_training_state
from perdure.nnx.envs import MoveToCenter
from perdure.nnx.state import join_state, live_variables, split_state


def with_a_shared_kernel(toys) -> Sequential:
    networks = toys.small_networks(MoveToCenter())
    first = Dense(2, 2, nnx.Rngs(1))
    second = Dense(2, 2, nnx.Rngs(2))
    second.kernel = first.kernel
    return Sequential([first, second, networks])


def test_arrays_reach_the_variables_that_they_came_from(toys):
    """Each variable gets the array of its own path; a shared one stays shared."""
    networks = with_a_shared_kernel(toys)
    state = new_training_state(MoveToCenter(), networks, 2, 0)
    _, arrays = split_state(state)
    changed = jax.tree.map(
        lambda leaf: leaf + 1 if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        arrays._replace(env_states=(), rng_key=()),
    )
    expected = changed.params, changed.rest, changed.optimizer
    variables = live_variables(state)
    join_state(state, changed, 0, variables)

    _, params, rest = nnx.split(state.networks, nnx.Param, ...)
    found = params, rest, nnx.state(state.optimizer)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one is other
    first, second = networks.layers[:2]
    assert isinstance(first, Dense)
    assert isinstance(second, Dense)
    assert second.kernel is first.kernel
    assert [id(variable) for variable in live_variables(state)] == [id(variable) for variable in variables]


def test_structures_of_equal_objects_are_one_key(toys):
    """So that two trainings of one structure share what is compiled."""
    one, other = (
        split_state(new_training_state(MoveToCenter(), toys.small_networks(MoveToCenter(), seed=seed), 2, 0))[0]
        for seed in (0, 1)
    )
    assert one == other
    assert hash(one) == hash(other)
