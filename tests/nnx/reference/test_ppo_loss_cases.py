"""PPO's loss and its gradient on cases worked out by hand: both signs of the advantage, clipping on and off."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    LoggingLevel,
    NormalTanhSampler,
    PPOAdapter,
    PPOConfig,
    SamplerOutput,
    StatefulModule,
    StatefulModuleOutput,
    Transition,
    ppo_loss,
)

pytestmark = pytest.mark.jax

CONFIG = PPOConfig(
    discounting_factor=0.5,
    gae_lambda=0.5,
    clip_range=0.2,
    normalize_advantages=False,
    critic_loss_weight=0.5,
    logging_level=LoggingLevel.LOSSES | LoggingLevel.ACTOR_EXTRA,
)


class Likelihoods(StatefulModule):
    """Trainable log-likelihoods, one an environment, whatever was done; costs `cost` an environment."""

    def __init__(self, values: list[float], cost: list[float] | None = None) -> None:
        self.values = nnx.Param(jnp.array(values))
        self.cost = nnx.Variable(jnp.array(cost or [0.0] * len(values)))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        return StatefulModuleOutput(
            module_state, SamplerOutput(self.values[...], self.values[...]), regularization_loss=self.cost[...]
        )


class Values(StatefulModule):
    """Trainable value estimates, one an environment."""

    def __init__(self, values: list[float]) -> None:
        self.values = nnx.Param(jnp.array(values))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        return StatefulModuleOutput(module_state, self.values[...])


def one_step(rewards: list[float]) -> Transition:
    """A single step of each environment, which ends the task; the acting policy had log-likelihood 0."""
    row = (1, len(rewards))
    return Transition(
        obs=jnp.zeros((*row, 1)),
        loglikelihoods=jnp.zeros(row),
        rewards=jnp.array([rewards]),
        done=jnp.ones(row, bool),
        bootstrap_values=jnp.zeros(row),
        rollout_extras={"action": (), "value": ()},
    )


def loss_and_gradients(networks: StatefulModule, rollout: Transition, config: PPOConfig) -> tuple[float, Any, Any]:
    graphdef, params, rest = nnx.split(networks, nnx.Param, ...)

    def loss(params: nnx.State) -> Any:
        trained = nnx.merge(graphdef, params, rest, copy=True)
        return ppo_loss(trained, {"action": (), "value": ()}, rollout, config)

    (value, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    return float(value), metrics, gradients


# With a value of 0, one step and an end, the advantage is the reward. The surrogate is min(r A, clip(r) A):
#   r    A    r A   clip(r) A  minimum  cut?                                   gradient of -minimum for log r
#  1.1   2    2.2      2.2       2.2    no: within the range                   -r A = -2.2
#  1.5   2    3.0      2.4       2.4    yes: already more likely than allowed    0
#  0.5   2    1.0      1.6       1.0    no: a good action became less likely   -r A = -1.0
#  0.9  -2   -1.8     -1.8      -1.8    no: within the range                   -r A =  1.8
#  0.5  -2   -1.0     -1.6      -1.6    yes: already less likely than allowed    0
#  1.5  -2   -3.0     -2.4      -3.0    no: a bad action became more likely    -r A =  3.0
CASES = [
    (1.1, 2.0, 2.2, -2.2),
    (1.5, 2.0, 2.4, 0.0),
    (0.5, 2.0, 1.0, -1.0),
    (0.9, -2.0, -1.8, 1.8),
    (0.5, -2.0, -1.6, 0.0),
    (1.5, -2.0, -3.0, 3.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "surrogate", "slope"), CASES)
def test_the_surrogate_is_cut_on_the_side_of_the_advantage(ratio, advantage, surrogate, slope):
    networks = PPOAdapter(action=Likelihoods([math.log(ratio)]), value=Values([0.0]))
    _, metrics, gradients = loss_and_gradients(networks, one_step([advantage]), CONFIG)

    assert float(metrics["losses/actor"]) == pytest.approx(-surrogate, rel=1e-6)
    assert float(gradients["action"]["values"][...][0]) == pytest.approx(slope, rel=1e-6)
    assert metrics["losses/clipping_fraction"].tolist() == [[abs(ratio - 1) > 0.2]]
    assert float(metrics["losses/approximate_kl"]) == pytest.approx(ratio - 1 - math.log(ratio), rel=1e-4)


def test_all_cases_together_average():
    networks = PPOAdapter(action=Likelihoods([math.log(case[0]) for case in CASES]), value=Values([0.0] * 6))
    _, metrics, gradients = loss_and_gradients(networks, one_step([case[1] for case in CASES]), CONFIG)

    # -(2.2 + 2.4 + 1.0 - 1.8 - 1.6 - 3.0) / 6 = 0.8 / 6
    assert float(metrics["losses/actor"]) == pytest.approx(0.8 / 6, rel=1e-5)
    np.testing.assert_allclose(gradients["action"]["values"][...], [case[3] / 6 for case in CASES], rtol=1e-5)
    assert metrics["losses/clipping_fraction"].tolist() == [[False, True, True, False, True, True]]


def test_the_critic_is_pulled_towards_the_return_and_the_actor_is_not_pulled_through_the_critic():
    """Value 3, reward 1, the end: the error is 2. Half its square is 2, times the weight 1/2; its slope 2 * 1/2."""
    networks = PPOAdapter(action=Likelihoods([0.0]), value=Values([3.0]))
    value, metrics, gradients = loss_and_gradients(networks, one_step([1.0]), CONFIG)

    assert float(metrics["losses/critic"]) == pytest.approx(2.0)
    assert float(metrics["losses/actor"]) == pytest.approx(2.0), "ratio 1, advantage -2"
    assert value == pytest.approx(2.0 + 0.5 * 2.0)
    assert float(gradients["value"]["values"][...][0]) == pytest.approx(0.5 * 2.0)
    assert float(gradients["action"]["values"][...][0]) == pytest.approx(2.0)


def test_regularisation_is_averaged_and_added_without_a_weight():
    networks = PPOAdapter(action=Likelihoods([0.0, 0.0], cost=[0.3, 0.5]), value=Values([1.0, 1.0]))
    value, metrics, _ = loss_and_gradients(networks, one_step([1.0, 1.0]), CONFIG)

    assert float(metrics["losses/regularization"]) == pytest.approx(0.4)
    assert value == pytest.approx(0.4)


def test_normalised_advantages_forget_shift_and_scale():
    """Rewards 1, 2, 6 have mean 3 and (population) deviation sqrt(14/3); likelihood ratios 1.1, 1 and 0.9."""
    networks = PPOAdapter(action=Likelihoods([math.log(1.1), 0.0, math.log(0.9)]), value=Values([0.0] * 3))
    config = PPOConfig(clip_range=0.2)
    expected = -(1.1 * -2 + 1.0 * -1 + 0.9 * 3) / math.sqrt(14 / 3) / 3
    for rewards in ([1.0, 2.0, 6.0], [110.0, 120.0, 160.0]):
        _, metrics, _ = loss_and_gradients(networks, one_step(rewards), config)
        assert float(metrics["losses/actor"]) == pytest.approx(expected, rel=1e-4)


def test_equal_advantages_are_normalised_to_nothing_and_not_to_infinity():
    networks = PPOAdapter(action=Likelihoods([0.0, 0.1]), value=Values([0.0, 0.0]))
    _, metrics, gradients = loss_and_gradients(networks, one_step([5.0, 5.0]), PPOConfig())

    assert float(metrics["losses/actor"]) == 0.0
    assert np.isfinite(gradients["action"]["values"][...]).all()


def test_the_entropy_of_the_tanh_normal_enters_negated_and_weighted():
    """A narrow normal at 0 loses nothing to tanh: its entropy is log(std * sqrt(2 pi e)), in nats, for each of 2."""
    std = 0.01
    spread = math.log(math.expm1(std - 1e-4))  # softplus undone
    sampler = NormalTanhSampler(nnx.Rngs(0), entropy_weight=0.25, min_std=1e-4)
    result = sampler((), jnp.array([[0.0, 0.0, spread, spread]]))

    entropy = 2 * math.log(std * math.sqrt(2 * math.pi * math.e))
    assert float(result.metrics["entropy"][0]) == pytest.approx(entropy, abs=1e-3)
    assert float(result.regularization_loss[0]) == pytest.approx(-0.25 * entropy, abs=1e-3)
