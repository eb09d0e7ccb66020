"""Containers of named modules and modules that route: who sees what, and what comes out."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    LSTM,
    Concat,
    Dense,
    Filter,
    Flattener,
    Map,
    Merge,
    Normalizer,
    Parallel,
    Scale,
    Splitter,
    StatefulModule,
    StatefulModuleOutput,
)

pytestmark = pytest.mark.jax

A, B = jnp.arange(6.0).reshape(2, 3), jnp.arange(4.0).reshape(2, 2)


def output(module: StatefulModule, obs: Any) -> Any:
    return module(module.initialize_state(2), obs).output


class Priced(StatefulModule):
    """Costs something, counts its calls in its carry, and says what it saw."""

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        del rollout_extras
        return StatefulModuleOutput(module_state + 1, obs, jnp.asarray(2.0), {"seen": obs}, {"input": obs})

    def initialize_state(self, batch_size: int) -> Any:
        return jnp.zeros(batch_size, jnp.int32)

    def reset_state(self, prev_state: Any) -> Any:
        return jnp.zeros_like(prev_state)


def test_parallel_feeds_the_same_input_to_all():
    assert {name: part.tolist() for name, part in output(Parallel(x=Scale(1), y=Scale(2)), A).items()} == {
        "x": A.tolist(),
        "y": (2 * A).tolist(),
    }


def test_map_feeds_each_its_own_entry_and_drops_the_rest():
    result = output(Map({"a": Scale(1), "b": Scale(3)}), {"a": A, "b": B, "c": A})

    assert sorted(result) == ["a", "b"]
    np.testing.assert_array_equal(result["b"], 3 * B)


def test_concat_joins_in_the_modules_order():
    result = output(Concat(b=Scale(1), a=Scale(1)), {"a": A, "b": B})

    np.testing.assert_array_equal(result, np.concatenate([B, A], axis=-1))


def test_merge_makes_one_dict_and_refuses_a_key_twice():
    left, right = Filter({"x": "a"}), Filter({"y": "b"})

    assert sorted(output(Merge(left=left, right=right), {"a": A, "b": B})) == ["x", "y"]
    with pytest.raises(ValueError, match=r"^Merge: 'right' returned the keys \['x'\], which another module returned"):
        output(Merge(left=left, right=Filter({"x": "b"})), {"a": A, "b": B})
    with pytest.raises(TypeError, match=r"^Merge: 'left' returned a ArrayImpl; each module must return a dict\.$"):
        output(Merge(left=Scale(1)), A)


def test_states_losses_metrics_and_extras_are_kept_apart():
    module = Parallel(x=Priced(), y=Priced(), z=Scale(1))
    result = module(module.initialize_state(2), A)

    assert result.next_state["x"].tolist() == [1, 1]
    assert result.next_state["z"] == ()
    assert float(result.regularization_loss) == 4.0
    assert sorted(result.metrics) == ["x", "y"]
    assert sorted(result.rollout_extras) == ["x", "y", "z"]
    assert module.reset_state({"x": jnp.int32(5), "y": jnp.int32(6), "z": ()})["x"] == 0


def test_statistics_reach_each_module():
    normalizers = {"a": Normalizer(3), "b": Normalizer(2)}
    module = Map(normalizers)
    result = module(module.initialize_state(2), {"a": A, "b": B})
    module.update_statistics(result.rollout_extras)

    np.testing.assert_allclose(normalizers["a"].mean[...], A.mean(axis=0))
    np.testing.assert_allclose(normalizers["b"].mean[...], B.mean(axis=0))


def test_a_missing_entry_and_a_container_of_nothing_are_named():
    with pytest.raises(ValueError, match=r"^Map: the input has no entry 'b'; it has \['a'\]\.$"):
        output(Map(b=Scale(1)), {"a": A})
    for kind in (Map, Parallel, Concat, Merge):
        with pytest.raises(ValueError, match=rf"^{kind.__name__}: at least one module is needed\.$"):
            kind()
        with pytest.raises(ValueError, match="not both"):
            kind({"a": Scale(1)}, b=Scale(1))


def test_flattener_joins_leaves_in_the_tree_s_order_below_the_kept_levels():
    tree = {"b": {"q": jnp.ones((2, 2, 2)), "p": A}, "a": B}

    np.testing.assert_array_equal(output(Flattener(), tree), np.concatenate([B, A, np.ones((2, 4))], axis=-1))
    kept = output(Flattener(preserve_levels=1), tree)
    assert {name: part.shape for name, part in kept.items()} == {"b": (2, 7), "a": (2, 2)}
    with pytest.raises(TypeError, match="where 1 more levels of dicts, lists or tuples should stay"):
        output(Flattener(preserve_levels=2), {"a": A})
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        Flattener(-1)


def test_filter_takes_keys_paths_and_functions():
    module = Filter({"x": "a", "y": ("b", 0), "z": lambda obs: obs["a"] + 1})
    result = output(module, {"a": A, "b": [B], "c": A})

    assert sorted(result) == ["x", "y", "z"]
    np.testing.assert_array_equal(result["y"], B)
    np.testing.assert_array_equal(result["z"], A + 1)
    with pytest.raises(TypeError, match="'x' is a int; expected a key, a path"):
        Filter({"x": 3})  # pyright: ignore[reportArgumentType]


def test_splitter_cuts_in_order_and_refuses_what_is_too_short():
    result = output(Splitter(left=1, right=2), A)

    np.testing.assert_array_equal(result["left"], A[:, :1])
    np.testing.assert_array_equal(result["right"], A[:, 1:])
    with pytest.raises(ValueError, match="the pieces need 4 numbers, the input has 3"):
        output(Splitter(left=4), A)
    with pytest.raises(ValueError, match="at least one piece of a positive size"):
        Splitter(left=0)


def test_branches_hold_modules_with_carries_and_parameters():
    module = Concat(a=LSTM(3, 2, nnx.Rngs(0)), b=Dense(2, 4, nnx.Rngs(1)))

    assert output(module, {"a": A, "b": B}).shape == (2, 6)
    assert len(nnx.to_flat_state(nnx.state(module, nnx.Param))) > 2
