"""The protocol's small functions, and the check of an environment against it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from perdure.nnx import EnvState
from perdure.nnx.environment import check_environment, done_of, truncation_of


def state_with(done, info) -> EnvState:
    return EnvState(data=(), obs=jnp.zeros(1), reward=jnp.zeros(()), done=done, info=info)


def test_done_and_truncation_may_be_floats_as_in_playground():
    state = state_with(jnp.array([0.0, 1.0, 1.0]), {"truncation": jnp.array([1.0, 0.0, 1.0])})

    assert done_of(state).tolist() == [False, True, True]
    assert truncation_of(state).tolist() == [False, False, True]


def test_an_environment_that_tells_no_truncation_never_truncates():
    assert truncation_of(state_with(jnp.array([True, False]), {})).tolist() == [False, False]


def test_a_sound_environment_passes(toys):
    env = toys.Counting()
    check_environment(env, jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2)), jnp.zeros(2))


def test_every_leaf_that_step_changes_is_named(toys):
    class Careless(toys.Counting):
        def step(self, state, action, /):
            after = super().step(state, action)
            info = {**after.info, "won": jnp.zeros(())}
            return dataclasses.replace(after, obs=after.obs.astype(jnp.float16), info=info)

    env = Careless()
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))

    with pytest.raises(TypeError, match="Careless: reset and step") as caught:
        check_environment(env, states, jnp.zeros(2))
    assert "obs: float32[2, 1] after reset, float16[2, 1] after step" in str(caught.value)
    assert "info/won: absent after reset, float32[2] after step" in str(caught.value)
