"""Rollouts start new episodes where one ends, keep what lies behind a truncation, and reset carries with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import CategoricalSampler, PPOAdapter, Sequential, make_mlp_actor_critic, make_mlp_layers, unroll_env
from perdure.nnx.rollout import bootstrapped


def collect(env, networks, *, length=12, batch=4, key=2):
    env_states = jax.vmap(env.reset)(jax.random.split(jax.random.key(1), batch))
    return unroll_env(env, env_states, networks, networks.initialize_state(batch), length, jax.random.key(key))


def plain(seed: int = 0):
    return make_mlp_actor_critic(1, 2, [4], [4], nnx.Rngs(seed), action_kind="discrete")


def test_episodes_follow_one_another(toys):
    _, env_states, rollout = collect(toys.Counting(limit=5, starts=3), plain())
    counts, done = np.asarray(rollout.obs[:, :, 0]), np.asarray(rollout.done)

    assert rollout.obs.shape == (12, 4, 1)
    assert rollout.rewards.tolist() == [[1.0] * 4] * 12
    np.testing.assert_array_equal(done, counts == 4)
    followed = counts[1:]
    np.testing.assert_array_equal(followed[~done[:-1]], counts[:-1][~done[:-1]] + 1)
    assert set(followed[done[:-1]]) <= {0, 1, 2}
    assert len(set(followed[done[:-1]])) > 1, "new episodes start from new draws"
    assert not env_states.done.any()


def test_the_key_decides_the_new_episodes(toys):
    counts = [collect(toys.Counting(), plain(), key=key)[2].obs for key in (2, 2, 3)]

    np.testing.assert_array_equal(counts[0], counts[1])
    assert not np.array_equal(counts[0], counts[2])


@pytest.mark.parametrize("truncates", [True, False])
def test_a_truncation_is_bootstrapped_from_its_final_observation(toys, truncates):
    networks = plain()
    carries, env_states, rollout = collect(toys.Counting(limit=5, truncates=truncates), networks)

    def value(count: float) -> float:
        return float(networks(networks.initialize_state(1), jnp.array([[count]])).output.value_estimates[0])

    done, bootstrap = np.asarray(rollout.done), np.asarray(rollout.bootstrap_values)
    np.testing.assert_allclose(bootstrap[done], value(5.0) if truncates else 0.0, rtol=1e-5)
    np.testing.assert_array_equal(bootstrap[:-1][~done[:-1]], 0.0)
    open_ends = [value(float(obs)) for obs in env_states.obs[~done[-1], 0]]
    assert open_ends, "the rollout ends within an episode"
    filled = np.asarray(bootstrapped(networks, carries, rollout))
    np.testing.assert_allclose(filled[-1][~done[-1]], open_ends, rtol=1e-5)
    np.testing.assert_array_equal(filled[:-1], bootstrap[:-1])
    np.testing.assert_array_equal(filled[-1][done[-1]], bootstrap[-1][done[-1]])


def test_a_bootstrap_draws_no_random_number(toys):
    streams = []
    for truncates in (True, False):
        networks = plain()
        collect(toys.Counting(truncates=truncates), networks)
        streams.append(toys.leaves_of(nnx.state(networks, nnx.RngState)))

    assert streams[0] == streams[1]
    assert any("count" in path for path in streams[0])


def test_carries_start_again_with_their_episodes(toys):
    rngs = nnx.Rngs(0)
    actor = Sequential([toys.Memory(1), *make_mlp_layers([1, 2], rngs), CategoricalSampler(rngs)])
    networks = PPOAdapter(action=actor, value=Sequential(make_mlp_layers([1, 1], rngs)))
    carries, _, rollout = collect(toys.Counting(), networks)

    for env in range(4):
        seen = 0.0
        for obs, done in zip(rollout.obs[:, env, 0], rollout.done[:, env], strict=True):
            seen = 0.0 if done else seen + float(obs)
        assert float(carries["action"][0][env, 0]) == seen
    assert rollout.done[:-1].any()


def test_value_heads_must_match_the_rewards(toys):
    with pytest.raises(ValueError, match="Give the network one value head a reward"):
        collect(toys.Counting(rewards=("food", "warmth")), plain())
