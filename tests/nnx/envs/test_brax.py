"""brax environments speak the protocol: equal types, truncation, termination, everything in the state."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perdure
from perdure.nnx.environment import ActionSpec, check_environment, truncation_of
from perdure.nnx.envs.brax import BACKENDS, BraxEnvironment

pytestmark = [pytest.mark.jax, pytest.mark.slow]

NAMES = [
    "ant",
    "fast",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "walker2d",
]
"""All but swimmer, which calls `jnp.clip` by argument names that JAX has no more."""


def episode(env: BraxEnvironment, actions: list[float], seed: int = 0) -> list[Any]:
    states = [jax.jit(env.reset)(jax.random.key(seed))]
    step = jax.jit(env.step)
    for action in actions:
        states.append(step(states[-1], jnp.full(env.action.size, action)))
    return states


def check(env: BraxEnvironment) -> None:
    state = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 3))
    check_environment(env, state, jax.ShapeDtypeStruct((3, env.action.size), jnp.float32))


@pytest.mark.parametrize("name", NAMES)
def test_reset_and_step_return_the_same_types(name: str):
    check(BraxEnvironment(name))


@pytest.mark.parametrize("backend", BACKENDS)
def test_so_they_do_with_every_backend(backend: str):
    check(BraxEnvironment("inverted_pendulum", backend))


@pytest.mark.parametrize("name", ["fast", "inverted_pendulum"])
def test_no_type_is_weak(name: str, toys: Any):
    reset, step = episode(BraxEnvironment(name), [0.1])
    types = [{path: kind for path, (kind, _) in toys.leaves_of(state).items()} for state in (reset, step)]

    assert types[0] == types[1]
    assert not any("True" in kind for kind in types[0].values()), "weak types compile the training step twice"
    assert jax.tree.structure(reset) == jax.tree.structure(step)


def test_the_time_limit_truncates():
    states = episode(BraxEnvironment("fast", episode_length=3), [0.0] * 3)

    assert [int(state.data["steps"]) for state in states] == [0, 1, 2, 3]
    assert [bool(state.done) for state in states] == [False, False, False, True]
    assert [bool(truncation_of(state)) for state in states] == [False, False, False, True]


def test_a_fall_terminates_even_in_the_last_step():
    free = episode(BraxEnvironment("inverted_pendulum"), [1.0] * 40)
    length = next(number for number, state in enumerate(free) if state.done)
    last = episode(BraxEnvironment("inverted_pendulum", episode_length=length), [1.0] * length)[-1]

    assert last.done
    assert not truncation_of(last)
    assert abs(last.obs[1]) > 0.2, "the observation is the one after the fall, not after a reset"


def test_a_reset_begins_a_new_episode():
    env = BraxEnvironment("inverted_pendulum", episode_length=2)
    first = episode(env, [1.0, 1.0], seed=0)
    second = episode(env, [], seed=1)

    assert first[-1].done
    assert int(second[0].data["steps"]) == 0
    assert not second[0].done
    assert (second[0].obs != first[0].obs).any()


def test_an_episode_is_the_one_that_brax_plays():
    states = episode(BraxEnvironment("inverted_pendulum"), [0.5, -0.3, 0.8, 0.1])
    native = import_module("brax.envs").get_environment("inverted_pendulum", backend="generalized")
    expected, step = jax.jit(native.reset)(jax.random.key(0)), jax.jit(native.step)

    for state, action in zip(states[1:], [0.5, -0.3, 0.8, 0.1], strict=True):
        expected = step(expected, jnp.full(1, action))
        np.testing.assert_allclose(state.obs, expected.obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.reward, expected.reward, rtol=1e-5)


@pytest.mark.parametrize(("name", "backend"), [("fast", "generalized"), *(("inverted_pendulum", b) for b in BACKENDS)])
def test_a_state_that_was_saved_goes_on_in_a_fresh_one(name: str, backend: str, tmp_path: Path, toys: Any):
    env = BraxEnvironment(name, backend)
    *_, saved = episode(env, [0.3, -0.2, 0.5])
    perdure.save(tmp_path / "saved", env_states=saved)

    loaded = perdure.load(tmp_path / "saved", env_states=episode(env, [], seed=7)[0])["env_states"]

    assert toys.leaves_of(loaded) == toys.leaves_of(saved)
    action = jnp.full(env.action.size, -0.4)
    step = jax.jit(env.step)
    assert toys.leaves_of(step(loaded, action)) == toys.leaves_of(step(saved, action))


def test_sizes_and_contract():
    env = BraxEnvironment("inverted_pendulum", "spring", episode_length=200)

    assert (env.obs_size, env.obs_shape, env.action) == (4, (4,), ActionSpec("continuous", 1))
    assert env.contract() == {
        "env": {
            "env_name": "inverted_pendulum",
            "episode_length": 200,
            "backend": "spring",
            "params": {},
            "brax": version("brax"),
            "mujoco": version("mujoco"),
            "mujoco_mjx": version("mujoco-mjx"),
        },
        "interface": {"obs_shape": (4,), "action": {"kind": "continuous", "size": 1}},
    }


def test_observations_may_be_dicts():
    env = BraxEnvironment("fast", obs_mode="dict_state", asymmetric_obs=True)

    assert env.obs_shape == {"state": (2,), "privileged_state": (4,)}
    assert env.obs_size == 6
    check(env)


def test_equal_environments_share_compiled_functions():
    assert BraxEnvironment("fast", obs_mode="ndarray") == BraxEnvironment("fast", obs_mode="ndarray")
    assert hash(BraxEnvironment("fast")) == hash(BraxEnvironment("fast"))
    assert BraxEnvironment("fast", episode_length=3) != BraxEnvironment("fast")
    assert BraxEnvironment("fast", "spring") != BraxEnvironment("fast")
    assert repr(BraxEnvironment("fast", obs_mode="ndarray")) == (
        "BraxEnvironment('fast', 'generalized', episode_length=1000, obs_mode='ndarray')"
    )


def test_mistakes_are_answered_with_what_there_is():
    with pytest.raises(ValueError, match=r"^brax has no environment 'cheetah'\. It has: ant, .*halfcheetah"):
        BraxEnvironment("cheetah")
    with pytest.raises(ValueError, match=r"^ant: brax has no backend 'warp'\. It has: generalized, mjx"):
        BraxEnvironment("ant", "warp")
    with pytest.raises(TypeError, match=r"^ant: brax refuses the parameters given \(gravity\): .*'gravity'\. Pass"):
        BraxEnvironment("ant", gravity=1.0)
    with pytest.raises(TypeError, match=r"^fast\.obs_mode: expected numbers, texts, .* got a set\."):
        BraxEnvironment("fast", obs_mode={"state"})
