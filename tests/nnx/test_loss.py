"""PPO's loss equals the paper's formulas worked by hand, and repeats recurrent rollouts exactly."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    CategoricalSampler,
    LoggingLevel,
    PPOAdapter,
    PPOConfig,
    Sequential,
    StatefulModule,
    StatefulModuleOutput,
    Transition,
    make_mlp_layers,
    ppo_loss,
    unroll_env,
)


class Constant(StatefulModule):
    """The same trainable output for every input."""

    def __init__(self, values: list[float]) -> None:
        self.values = nnx.Param(jnp.array(values))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        return StatefulModuleOutput(module_state, jnp.broadcast_to(self.values[...], (obs.shape[0], self.values.size)))


def by_hand() -> tuple[StatefulModule, Transition]:
    """Two steps of one environment. Policy (1/4, 3/4), value 1; the rollout's policy was (1/2, 1/2)."""
    sampler = CategoricalSampler(nnx.Rngs(0), entropy_weight=0.1)
    networks = PPOAdapter(action=Sequential([Constant([0.0, math.log(3.0)]), sampler]), value=Constant([1.0]))
    column = [[1.0], [2.0]]
    rollout = Transition(
        obs=jnp.zeros((2, 1, 1)),
        loglikelihoods=jnp.full((2, 1), math.log(0.5)),
        rewards=jnp.array(column),
        done=jnp.zeros((2, 1), bool),
        bootstrap_values=jnp.array([[0.0], [4.0]]),
        rollout_extras={"action": ((), {"raw_action": jnp.array([[1], [0]])}), "value": ()},
    )
    return networks, rollout


def test_the_loss_is_the_papers():
    networks, rollout = by_hand()
    config = PPOConfig(
        discounting_factor=0.5,
        gae_lambda=1.0,
        clip_range=0.2,
        normalize_advantages=False,
        critic_loss_weight=2.0,
        logging_level=LoggingLevel.ALL,
    )
    loss, metrics = ppo_loss(networks, networks.initialize_state(1), rollout, config)

    # Errors: 2 + 4/2 - 1 = 3 and 1 + 1/2 - 1 = 1/2. Advantages: 3, and 1/2 + 3/2 = 2. Ratios: 3/2 and 1/2.
    actor = -(min(1.5 * 2, 1.2 * 2) + min(0.5 * 3, 0.8 * 3)) / 2
    critic = 0.5 * (2**2 + 3**2) / 2
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(metrics["losses/actor"]) == pytest.approx(actor)
    assert float(metrics["losses/critic"]) == pytest.approx(critic)
    assert float(metrics["losses/regularization"]) == pytest.approx(-0.1 * entropy)
    assert metrics["losses/clipping_fraction"].tolist() == [[True], [True]]
    kl = (1.5 - 1 - math.log(1.5) + 0.5 - 1 - math.log(0.5)) / 2
    assert float(metrics["losses/approximate_kl"]) == pytest.approx(kl)
    np.testing.assert_allclose(metrics["losses/advantages"], [[2.0], [3.0]])
    np.testing.assert_allclose(metrics["losses/predicted_value"], [[1.0], [1.0]])
    # Returns 4 and 3: variance 1/4; the squared error's mean is twice the critic's loss.
    assert float(metrics["losses/critic_R^2"]) == pytest.approx(1 - 2 * critic / 0.25, rel=1e-5)
    assert float(loss) == pytest.approx(actor + 2 * critic - 0.1 * entropy)


def test_normalised_advantages_have_mean_zero_and_deviation_one():
    networks, rollout = by_hand()
    _, metrics = ppo_loss(
        networks, networks.initialize_state(1), rollout, PPOConfig(discounting_factor=0.5, gae_lambda=1.0)
    )

    # Advantages 2 and 3 become -1 and 1.
    assert float(metrics["losses/actor"]) == pytest.approx(-(min(1.5 * -1, 1.2 * -1) + min(0.5, 0.8)) / 2, rel=1e-5)


def test_only_the_critic_is_pulled_towards_the_returns():
    networks, rollout = by_hand()
    graphdef, params, rest = nnx.split(networks, nnx.Param, ...)

    def critic(params: nnx.State) -> jax.Array:
        config = PPOConfig(discounting_factor=0.5, gae_lambda=1.0)
        return ppo_loss(
            nnx.merge(graphdef, params, rest, copy=True), {"action": ((), ()), "value": ()}, rollout, config
        )[1]["losses/critic"]

    gradient = jax.grad(critic)(params)
    assert float(gradient["value"]["values"][...][0]) == pytest.approx(-(2 + 3) / 2), "targets are constants"


def recurrent(toys, *, rewards: tuple[str, ...] = ()) -> Any:
    rngs = nnx.Rngs(0)
    actor = Sequential([toys.Memory(1), *make_mlp_layers([1, 3], rngs), CategoricalSampler(rngs)])
    heads = Heads(rewards) if rewards else Sequential(make_mlp_layers([1, 1], rngs))
    return PPOAdapter(action=actor, value=heads)


class Heads(StatefulModule):
    """One constant value head a reward."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.heads = nnx.Dict({name: Constant([0.5]) for name in names})

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        return StatefulModuleOutput(module_state, {name: head((), obs).output for name, head in self.heads.items()})


def collect(env, networks, length=9, batch=4):
    env_states = jax.vmap(env.reset)(jax.random.split(jax.random.key(1), batch))
    carries = networks.initialize_state(batch)
    return carries, unroll_env(env, env_states, networks, carries, length, jax.random.key(2))


def test_a_recurrent_rollout_is_replayed_through_its_resets(toys):
    networks = recurrent(toys)
    carries, (_, _, rollout) = collect(toys.Counting(), networks)
    assert rollout.done.any(), "episodes end within the rollout"
    output = networks.replay(carries, rollout.obs, rollout.rollout_extras, rollout.done).output

    np.testing.assert_allclose(output.loglikelihoods, rollout.loglikelihoods, rtol=1e-5)


def test_a_replay_that_forgets_the_resets_differs(toys):
    networks = recurrent(toys)
    carries, (_, _, rollout) = collect(toys.Counting(), networks)
    forgetful = Transition(**{**vars(rollout), "done": jnp.zeros_like(rollout.done)})
    output = networks.replay(carries, forgetful.obs, forgetful.rollout_extras, forgetful.done).output

    assert not np.allclose(output.loglikelihoods, rollout.loglikelihoods, rtol=1e-3)


def test_rewards_that_no_agent_is_paired_with_must_be_combined(toys):
    networks = recurrent(toys, rewards=("food", "warmth"))
    carries, (_, _, rollout) = collect(toys.Counting(rewards=("food", "warmth")), networks)

    with pytest.raises(ValueError, match=r"they cannot be paired. Set combine_advantages=True"):
        ppo_loss(networks, carries, rollout, PPOConfig())
    loss, _ = ppo_loss(networks, carries, rollout, PPOConfig(combine_advantages=True))
    assert np.isfinite(loss)
