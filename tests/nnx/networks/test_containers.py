"""Chains, adapters and factories put the right modules together, and say what does not fit."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from flax import nnx

from perdure.nnx import (
    CategoricalSampler,
    Dense,
    Flattener,
    Normalizer,
    NormalTanhSampler,
    PPOAdapter,
    Sequential,
    make_mlp,
    make_mlp_actor_critic,
    make_mlp_layers,
)
from perdure.nnx.networks.factories import ActionKind


def test_a_chain_passes_states_extras_and_metrics_by_position(toys):
    chain = Sequential([Normalizer(3), toys.Memory(3), CategoricalSampler(nnx.Rngs(0), entropy_weight=0.0)])
    state = chain.initialize_state(2)
    first = chain(state, jnp.ones((2, 3)))
    second = chain(first.next_state, jnp.ones((2, 3)), first.rollout_extras)

    assert state[1].tolist() == [[0.0] * 3] * 2
    assert second.next_state[1].tolist() == [[2.0] * 3] * 2
    assert set(second.metrics) == {"2"}
    assert second.output.action.tolist() == first.output.action.tolist()
    assert chain.reset_state(second.next_state)[1].tolist() == [[0.0] * 3] * 2


def test_statistics_reach_the_normaliser_inside():
    networks = make_mlp_actor_critic(2, 3, [4], [4], nnx.Rngs(0), action_kind="discrete")
    extras = networks(networks.initialize_state(5), jnp.ones((5, 2))).rollout_extras
    networks.update_statistics({0: {"input": extras[0]["input"][None]}, 1: extras[1]})

    assert networks.layers[0].count() == 5  # pyright: ignore[reportAttributeAccessIssue]


def test_several_agents_and_value_heads_stay_apart():
    class Pair(Sequential):
        def __call__(self, module_state, obs, rollout_extras=None):
            extras = rollout_extras or (None, None)
            results = [layer((), obs, extra) for layer, extra in zip(self.layers, extras, strict=True)]
            output = {name: result.output for name, result in zip("ab", results, strict=True)}
            return results[0].__class__((), output, rollout_extras=tuple(r.rollout_extras for r in results))

    rngs = nnx.Rngs(0)
    adapter = PPOAdapter(
        action=Pair([CategoricalSampler(rngs), NormalTanhSampler(rngs)]),
        value=Pair([Dense(2, 1, rngs), Dense(2, 1, rngs)]),
    )
    output = adapter({"action": (), "value": ()}, jnp.ones((3, 2))).output

    assert output.actions["a"].shape == (3,)
    assert output.actions["b"].shape == (3, 1)
    assert {name: leaf.shape for name, leaf in output.loglikelihoods.items()} == {"a": (3,), "b": (3,)}
    assert {name: leaf.shape for name, leaf in output.value_estimates.items()} == {"a": (3,), "b": (3,)}


def test_the_factory_ends_the_actor_for_the_kind_of_action():
    kinds: tuple[tuple[ActionKind, tuple[int, ...]], ...] = (("discrete", (2,)), ("continuous", (2, 3)))
    for kind, shape in kinds:
        networks = make_mlp_actor_critic(4, 3, [5, 6], [7], nnx.Rngs(0), "tanh", action_kind=kind)
        output = networks(networks.initialize_state(2), jnp.ones((2, 4))).output
        assert output.actions.shape == shape
        assert output.value_estimates.shape == output.loglikelihoods.shape == (2,)


def test_hidden_layers_alone_have_an_activation_if_asked():
    layers = make_mlp_layers([2, 3, 4], nnx.Rngs(0), activation_last_layer=False)

    assert [layer.activation for layer in layers] == [nnx.relu, None]
    assert make_mlp([2, 3], nnx.Rngs(0))(((),), -jnp.ones((1, 2)) * 9).output.min() >= 0


def test_the_flattener_keeps_the_batch():
    assert Flattener()((), jnp.zeros((2, 3, 4))).output.shape == (2, 12)


def test_what_does_not_fit_is_explained():
    with pytest.raises(ValueError, match=r"Dense\(3, 4\) got an input of shape \(2, 5\), whose last axis is not 3"):
        Dense(3, 4, nnx.Rngs(0))((), jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match="an MLP needs at least an input and an output size"):
        make_mlp([3], nnx.Rngs(0))
    with pytest.raises(ValueError, match="unknown activation 'sine'"):
        make_mlp_actor_critic(2, 2, [2], [2], nnx.Rngs(0), "sine")
    with pytest.raises(ValueError, match="unknown action kind 'both'"):
        make_mlp_actor_critic(2, 2, [2], [2], nnx.Rngs(0), action_kind="both")  # pyright: ignore[reportArgumentType]
    no_sampler = PPOAdapter(action=Flattener(), value=Flattener())
    with pytest.raises(TypeError, match=r"the action module returned .*, not SamplerOutput"):
        no_sampler({"action": (), "value": ()}, jnp.zeros((2, 1)))
    wide_value = PPOAdapter(action=CategoricalSampler(nnx.Rngs(0)), value=Flattener())
    with pytest.raises(ValueError, match=r"a value estimate has shape \(2, 3\); expected \[B\] or \[B, 1\]"):
        wide_value({"action": (), "value": ()}, jnp.zeros((2, 3)))
