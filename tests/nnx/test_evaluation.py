"""An evaluation counts exactly the first episodes, depends on its key alone, and touches nothing."""

from __future__ import annotations

import jax
from flax import nnx

from perdure.nnx import eval_rollout, make_mlp_actor_critic
from perdure.nnx.state import evaluation_key, training_key


def policy():
    return make_mlp_actor_critic(1, 2, [4], [4], nnx.Rngs(0), action_kind="discrete")


def test_the_first_episode_of_each_environment_counts(toys):
    found = eval_rollout(toys.Counting(limit=7, starts=1), policy(), 6, 50, jax.random.key(0))

    assert found == {
        "lifespan_mean": 7.0,
        "lifespan_std": 0.0,
        "episode_reward_mean": 7.0,
        "episode_reward_std": 0.0,
        "episodes_cut_off": 0,
    }
    assert all(type(value) in (int, float) for value in found.values())


def test_returns_of_unequal_episodes_are_not_mixed(toys):
    found = eval_rollout(toys.Counting(limit=7, starts=7), policy(), 64, 50, jax.random.key(0), (0, 50, 100))

    assert (found["episode_reward/p0"], found["episode_reward/p100"]) == (1.0, 7.0)
    assert (found["lifespan/p0"], found["lifespan/p100"]) == (1.0, 7.0)
    assert found["lifespan/p50"] == found["episode_reward/p50"] in {3.0, 3.5, 4.0, 4.5, 5.0}
    assert found["episode_reward_mean"] == found["lifespan_mean"]
    assert 3.0 < found["episode_reward_mean"] < 5.0


def test_long_episodes_are_cut_off_and_counted(toys):
    found = eval_rollout(toys.Counting(limit=7, starts=1), policy(), 3, 4, jax.random.key(0))

    assert (found["episode_reward_mean"], found["episodes_cut_off"]) == (4.0, 3)


def test_each_reward_has_its_own_return(toys):
    from perdure.nnx.environment import EnvState

    class TwoRewards(toys.Counting):
        def step(self, state, action, /):
            after = super().step(state, action)
            return EnvState(**{**vars(after), "reward": {"food": after.reward, "warmth": 2 * after.reward}})

        def reset(self, key, /):
            state = super().reset(key)
            return EnvState(**{**vars(state), "reward": {"food": state.reward, "warmth": state.reward}})

    found = eval_rollout(TwoRewards(limit=7, starts=1), policy(), 2, 50, jax.random.key(0))
    assert (found["episode_reward_mean/food"], found["episode_reward_mean/warmth"]) == (7.0, 14.0)


def test_the_networks_are_not_touched(toys):
    networks = policy()
    before = toys.leaves_of(nnx.state(networks))
    eval_rollout(toys.Counting(), networks, 4, 10, jax.random.key(0))

    assert toys.leaves_of(nnx.state(networks)) == before
    sampler = networks.layers[1].action.layers[-1]  # pyright: ignore[reportAttributeAccessIssue]
    assert sampler.deterministic is False


def test_the_key_alone_decides(toys):
    env = toys.Counting(limit=9, starts=9)
    means = [eval_rollout(env, policy(), 64, 50, jax.random.key(k))["episode_reward_mean"] for k in (0, 0, 1)]

    assert means[0] == means[1] != means[2]


def test_evaluation_keys_are_distinct_also_beyond_32_bits():
    keys = [evaluation_key(0, steps) for steps in (0, 1, 2**32, 2**32 + 1)]
    keys += [evaluation_key(1, 0), training_key(0), training_key(1)]

    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)
