"""Wrappers: where episodes are cut off, from which counts they start, what rewards become, and what is handed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perdure.nnx import EnvState, EpisodeWrapper, RewardScalingWrapper
from perdure.nnx.environment import check_environment, truncation_of
from perdure.nnx.envs import MoveToCenter, TwoGoals

pytestmark = pytest.mark.jax

STILL = jnp.zeros(2)


@dataclass(frozen=True)
class Playground:
    """As MuJoCo Playground does it: `done` is a float, `info` is handed on, sizes have its names."""

    ends_at: int = 1000
    observation_size: int = 1
    action_size: int = 1

    def reset(self, key: jax.Array, /) -> EnvState:
        zero = jnp.zeros(())
        return EnvState(zero, zero[None], zero, zero, {"steps": jnp.zeros((), jnp.int32)})

    def step(self, state: EnvState, action: Any, /) -> EnvState:
        info = {**state.info, "steps": state.info["steps"] + 1}
        done = (info["steps"] >= self.ends_at).astype(jnp.float32)
        return EnvState(state.data + 1, state.obs, jnp.ones(()), done, info)


def steps_until_done(env: Any, key: int) -> tuple[int, Any]:
    step, state, count = jax.jit(env.step), env.reset(jax.random.key(key)), 0
    while not state.done:
        state, count = step(state, jnp.zeros(1)), count + 1
    return count, state


@pytest.mark.parametrize("key", range(4))
def test_an_episode_lasts_from_its_start_count_to_the_limit(key: int):
    env = EpisodeWrapper(Playground(), 9)
    start = int(env.reset(jax.random.key(key)).info["step_counter"])
    length, last = steps_until_done(env, key)

    assert start + length == 9
    assert int(last.info["step_counter"]) == 9
    assert truncation_of(last)
    assert last.done.dtype == jnp.float32, "as the inner environment's"


@pytest.mark.parametrize(("max_len", "values"), [(1, {0}), (2, {0}), (3, {0}), (4, {0, 1}), (9, {0, 1, 2, 3})])
def test_start_counts_are_spread_over_the_first_half(max_len: int, values: set[int]):
    env = EpisodeWrapper(Playground(), max_len)
    counts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 200)).info["step_counter"]

    assert counts.dtype == jnp.int32
    assert set(counts.tolist()) == values


def test_start_counts_are_uniform():
    env = EpisodeWrapper(Playground(), 8)
    counts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4000)).info["step_counter"]

    np.testing.assert_allclose(np.bincount(counts), 1000, atol=4 * np.sqrt(4000 * 0.25 * 0.75))


def test_the_count_does_not_disturb_the_inner_draws():
    inner = MoveToCenter()
    starts = {float(EpisodeWrapper(inner, length).reset(jax.random.key(0)).obs[0]) for length in (2, 10, 1000)}

    assert len(starts) == 1


def test_an_end_of_the_task_in_the_last_step_is_no_truncation():
    start = int(EpisodeWrapper(Playground(), 9).reset(jax.random.key(0)).info["step_counter"])
    for ends_at, is_truncated in ((9 - start, False), (9 - start + 1, True), (9 - start - 1, False)):
        length, last = steps_until_done(EpisodeWrapper(Playground(ends_at), 9), 0)
        assert bool(truncation_of(last)) == is_truncated
        assert length == min(ends_at, 9 - start)


def test_a_truncation_of_the_inner_environment_stays_one():
    env = EpisodeWrapper(MoveToCenter(episode_length=2), 1000)
    state = env.reset(jax.random.key(0))
    for _ in range(2):
        state = env.step(state, STILL)

    assert state.done
    assert truncation_of(state)


@pytest.mark.parametrize(
    "env", [EpisodeWrapper(Playground(), 5), RewardScalingWrapper(Playground(), 2.0), EpisodeWrapper(TwoGoals(), 5)]
)
def test_the_types_of_reset_and_step_agree(env: Any):
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))

    check_environment(env, states, jnp.zeros((2, 2)))


def test_every_reward_is_scaled():
    inner, action = TwoGoals(), jnp.array([1.0, 0.5])
    plain = inner.step(inner.reset(jax.random.key(0)), action)
    env = RewardScalingWrapper(inner, -3.0)
    scaled = env.step(env.reset(jax.random.key(0)), action)

    assert float(plain.reward["effort"]) == -0.625
    assert {name: float(value) for name, value in scaled.reward.items()} == {
        name: -3.0 * float(value) for name, value in plain.reward.items()
    }
    assert scaled.reward["effort"].dtype == jnp.float32
    start = RewardScalingWrapper(MoveToCenter(), 2.0).reset(jax.random.key(0))
    assert float(start.reward) == 2 * float(MoveToCenter().reset(jax.random.key(0)).reward)


def test_sizes_are_those_of_the_environment_inside():
    env = RewardScalingWrapper(EpisodeWrapper(MoveToCenter(), 5), 1.0)
    playground = EpisodeWrapper(Playground(), 5)

    assert (env.obs_size, env.action) == (2, MoveToCenter().action)
    assert (playground.observation_size, playground.action_size) == (1, 1)
    assert not hasattr(env, "observation_size")
    assert not hasattr(playground, "obs_size")
    assert not hasattr(playground, "action")


def test_the_contract_is_the_inner_one_and_what_the_wrappers_add():
    inner = MoveToCenter().contract()
    env = RewardScalingWrapper(RewardScalingWrapper(EpisodeWrapper(MoveToCenter(), 5), 0.5), 3.0)

    assert env.contract() == {
        "env": {**inner["env"], "EpisodeWrapper": {"max_len": 5}},
        "interface": inner["interface"],
        "reward": {"RewardScalingWrapper": {"reward_scale": 0.5}, "RewardScalingWrapper_2": {"reward_scale": 3.0}},
    }
    told = EpisodeWrapper(Playground(), 5).contract()["env"]
    assert told["EpisodeWrapper"] == {"max_len": 5}
    assert (told["class"], told["ends_at"]) == (Playground, 1000)


def test_equal_fields_make_equal_wrappers():
    assert EpisodeWrapper(MoveToCenter(), 5) == EpisodeWrapper(MoveToCenter(), 5)
    assert hash(EpisodeWrapper(MoveToCenter(), 5)) == hash(EpisodeWrapper(MoveToCenter(), 5))
    assert EpisodeWrapper(MoveToCenter(), 5) != EpisodeWrapper(MoveToCenter(), 6)
    assert RewardScalingWrapper(MoveToCenter(), 2.0) != RewardScalingWrapper(MoveToCenter(), 3.0)


@pytest.mark.parametrize("max_len", [0, -3, 2.5, True, 2**31])
def test_a_limit_that_is_none_is_refused(max_len: Any):
    with pytest.raises(ValueError, match=rf"EpisodeWrapper.max_len must be a positive integer .*, got {max_len}\."):
        EpisodeWrapper(MoveToCenter(), max_len)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_factor_that_is_no_number_is_refused(scale: float):
    with pytest.raises(ValueError, match=rf"RewardScalingWrapper.reward_scale must be finite, got {scale}\."):
        RewardScalingWrapper(MoveToCenter(), scale)


def test_an_environment_is_wrapped_once():
    env = EpisodeWrapper(EpisodeWrapper(MoveToCenter(), 5), 9)

    with pytest.raises(ValueError, match=r"has an info\['step_counter'\] already. Wrap an environment once"):
        env.reset(jax.random.key(0))
