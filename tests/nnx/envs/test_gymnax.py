"""gymnax environments speak the protocol, and their two ways to end are told apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perdure.nnx.environment import ActionSpec, truncation_of
from perdure.nnx.envs.gymnax import GymnaxEnvironment


def episode(env, actions) -> list:
    states = [env.reset(jax.random.key(0))]
    step = jax.jit(env.step)
    for action in actions:
        states.append(step(states[-1], action))
    return states


def test_cartpole_has_the_sizes_of_cartpole():
    env = GymnaxEnvironment("CartPole-v1")

    assert (env.obs_size, env.obs_shape, env.action) == (4, (4,), ActionSpec("discrete", 2))


def test_a_fall_terminates_and_the_final_observation_is_kept():
    states = episode(GymnaxEnvironment("CartPole-v1"), [1] * 11)
    last = next(state for state in states if state.done)

    assert not truncation_of(last)
    assert abs(last.obs[2]) > 12 * 2 * np.pi / 360, "the observation is the one after the fall, not after a reset"
    assert last.reward == 1.0


def test_the_time_limit_truncates():
    states = episode(GymnaxEnvironment("CartPole-v1", max_steps_in_episode=3), [0, 1, 0])

    assert [bool(state.done) for state in states] == [False, False, False, True]
    assert [bool(truncation_of(state)) for state in states] == [False, False, False, True]


def test_a_fall_in_the_last_step_is_a_termination():
    free = episode(GymnaxEnvironment("CartPole-v1"), [1] * 11)
    length = next(number for number, state in enumerate(free) if state.done)
    states = episode(GymnaxEnvironment("CartPole-v1", max_steps_in_episode=length), [1] * length)

    assert states[-1].done
    assert not truncation_of(states[-1])


def test_reset_and_step_return_the_same_types(toys):
    for env_id, action in (("CartPole-v1", 1), ("Pendulum-v1", jnp.zeros(1))):
        reset, step = episode(GymnaxEnvironment(env_id), [action])
        types = [{path: kind for path, (kind, _) in toys.leaves_of(state).items()} for state in (reset, step)]
        assert types[0] == types[1]
        assert not any("True" in kind for kind in types[0].values()), "weak types compile the training step twice"


def test_continuous_actions_are_stretched_to_the_bounds():
    env = GymnaxEnvironment("Pendulum-v1")
    assert env.action == ActionSpec("continuous", 1)

    for action, torque in ((1.0, 2.0), (-0.5, -1.0), (3.0, 2.0)):
        _, state = episode(env, [jnp.array([action])])
        assert state.data["state"].last_u == torque


def test_the_key_is_kept_in_the_state_and_moves_on():
    states = episode(GymnaxEnvironment("CartPole-v1"), [0, 0])
    keys = [tuple(jax.random.key_data(state.data["key"]).tolist()) for state in states]

    assert len(set(keys)) == 3


def test_equal_environments_share_compiled_functions():
    assert GymnaxEnvironment("CartPole-v1", gravity=9.0) == GymnaxEnvironment("CartPole-v1", gravity=9.0)
    assert hash(GymnaxEnvironment("CartPole-v1")) == hash(GymnaxEnvironment("CartPole-v1"))
    assert GymnaxEnvironment("CartPole-v1", gravity=9.0) != GymnaxEnvironment("CartPole-v1")
    assert repr(GymnaxEnvironment("CartPole-v1", gravity=9.0)) == "GymnaxEnvironment('CartPole-v1', gravity=9.0)"


def test_mistakes_are_answered_with_what_there_is():
    with pytest.raises(ValueError, match=r"no environment 'CartPole'. It has: .*CartPole-v1"):
        GymnaxEnvironment("CartPole")
    with pytest.raises(ValueError, match=r"CartPole-v1 has no parameter gravitation. It has: .*gravity"):
        GymnaxEnvironment("CartPole-v1", gravitation=1.0)
