"""Pytrees: optax states, dataclasses and custom nodes come back with the target's type and static data."""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

pytestmark = pytest.mark.jax


def assert_equal(first: Any, second: Any) -> None:
    """Same structure, dtypes, weak types and bits."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array):
            assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


PARAMS = {"w": jnp.arange(2.0), "b": jnp.ones(1)}
GRADS = {"w": jnp.array([0.1, -0.2]), "b": jnp.array([0.3])}


def schedule() -> optax.Schedule:
    return optax.linear_schedule(1e-2, 1e-3, 10)


TRANSFORMATIONS = {
    "adam": lambda: optax.adam(1e-2),
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9),
    "plain sgd": lambda: optax.sgd(1e-2),
    "adam in bfloat16": lambda: optax.adam(1e-2, mu_dtype=jnp.bfloat16),
    "chain with a schedule": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule())),
    "masked": lambda: optax.chain(optax.masked(optax.trace(0.9), {"w": True, "b": False}), optax.scale(-1.0)),
    "multi_transform": lambda: optax.multi_transform(
        {"fast": optax.adam(1e-1), "slow": optax.sgd(1e-3, momentum=0.5)}, {"w": "fast", "b": "slow"}
    ),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=schedule()),
    "injected number": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
    "multi_steps": lambda: optax.MultiSteps(optax.sgd(1e-2), 3).gradient_transformation(),
    "ema": lambda: optax.ema(0.9),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_an_optax_state_comes_back_and_the_next_update_is_the_same(trip, name: str):
    tx = TRANSFORMATIONS[name]()
    _, state = tx.update(GRADS, tx.init(PARAMS), PARAMS)

    back = trip.restored(state, TRANSFORMATIONS[name]().init(PARAMS))

    assert_equal(back, state)
    assert_equal(tx.update(GRADS, back, PARAMS), tx.update(GRADS, state, PARAMS))


def test_the_dtypes_of_moments_are_findings(trip):
    saved = optax.adam(1e-2).init(PARAMS)
    target = optax.adam(1e-2, mu_dtype=jnp.bfloat16).init(PARAMS)

    assert trip.findings({"opt": saved}, {"opt": target}) == [
        ("c/opt/0/mu/b", "float32 1 0.0", "bfloat16 1"),
        ("c/opt/0/mu/w", "float32 2", "bfloat16 2"),
    ]


def test_another_chain_is_a_finding(trip):
    saved = optax.chain(optax.clip(1.0), optax.adam(1e-2)).init(PARAMS)

    assert trip.findings(saved, optax.adam(1e-2).init(PARAMS))


@flax.struct.dataclass
class State:
    x: Any
    n: int = flax.struct.field(pytree_node=False, default=0)
    fn: Any = flax.struct.field(pytree_node=False, default=None)


def test_a_flax_dataclass_comes_back_static_fields_included(trip):
    back = trip.restored(State(x={"a": jnp.ones(2)}, n=5, fn=jnp.tanh), State(x={"a": jnp.zeros(2)}, n=0, fn=jnp.tanh))

    assert type(back) is State
    assert (back.x["a"].tolist(), back.n, back.fn) == ([1, 1], 5, jnp.tanh)


def test_another_static_function_is_refused(trip):
    found = trip.findings([State(x=1, fn=jnp.tanh)], [State(x=1, fn=jnp.sin)])

    assert found == [("c/0/fn", "function jax:tanh", "function jax:sin")]


def test_a_train_state_comes_back_with_its_optimizer(trip):
    tx = optax.adam(1e-2)

    def fresh(scale: float) -> TrainState:
        return TrainState.create(apply_fn=jnp.dot, params={"w": scale * jnp.ones(2)}, tx=tx)

    saved = fresh(1.0).apply_gradients(grads={"w": jnp.ones(2)})
    back = trip.restored(saved, fresh(2.0))

    assert type(back) is TrainState
    assert_equal(back, saved)
    assert back.tx is tx


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["tag"])
@dataclasses.dataclass
class Registered:
    x: Any
    tag: str = "a"


@jax.tree_util.register_pytree_with_keys_class
class WithKeys:
    def __init__(self, left: Any, right: Any, tag: str) -> None:
        self.left, self.right, self.tag = left, right, tag

    def tree_flatten_with_keys(self) -> Any:
        name = jax.tree_util.GetAttrKey
        return ((name("left"), self.left), (name("right"), self.right)), self.tag

    @classmethod
    def tree_unflatten(cls, tag: str, children: Any) -> "WithKeys":
        left, right = children
        return cls(left, right, tag)


@jax.tree_util.register_pytree_node_class
class WithoutKeys:
    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> Any:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _aux: None, children: Any) -> "WithoutKeys":
        return cls(*children)


@jax.tree_util.register_pytree_with_keys_class
class SameKeys(WithoutKeys):
    def tree_flatten_with_keys(self) -> Any:
        return [(jax.tree_util.GetAttrKey("x"), child) for child in self.children], None


def test_a_registered_dataclass_comes_back(trip):
    back = trip.restored(Registered(jnp.ones(2), "b"), Registered(jnp.zeros(2)))

    assert (type(back), back.x.tolist(), back.tag) == (Registered, [1, 1], "b")


def test_a_custom_node_is_stored_by_its_keys(trip):
    saved = WithKeys(jnp.ones(2), {"x": 3}, "same")
    assert list(trip.tree(saved)) == ["left", "right"]

    back = trip.restored(saved, WithKeys(jnp.zeros(2), {"x": 0}, "same"))

    assert (type(back), back.left.tolist(), back.right, back.tag) == (WithKeys, [1, 1], {"x": 3}, "same")


def test_other_static_data_of_a_custom_node_is_a_finding(trip):
    """A class may count in what it keeps beside its children; a reset there must not pass in silence."""
    saved, target = WithKeys(jnp.ones(2), 3, "saved"), WithKeys(jnp.zeros(2), 0, "target")

    [(place, here, there)] = trip.findings(saved, target)

    assert (place, "'saved'" in here, "'target'" in there) == ("c", True, True)


@pytest.mark.parametrize("kind", [WithoutKeys, SameKeys])
def test_a_custom_node_without_telling_keys_is_stored_by_position(trip, kind: type[WithoutKeys]):
    saved = kind(jnp.ones(1), 2, [jnp.zeros(2)])
    assert list(trip.tree(saved)) == [0, 1, 2]

    back = trip.restored(saved, kind(jnp.zeros(1), 0, [jnp.ones(2)]))

    assert type(back) is kind
    assert_equal(back, saved)


def test_a_custom_node_of_another_shape_is_a_finding(trip):
    assert trip.findings([WithoutKeys(jnp.ones(1), 2)], [WithoutKeys(jnp.ones(1))]) == [("c/0/1", "2", "missing")]


def test_generators_inside_a_pytree_are_restored_in_place(trip):
    rng, target = np.random.default_rng(1), np.random.default_rng(2)

    back = trip.restored(WithKeys(rng, jnp.ones(1), "a"), WithKeys(target, jnp.zeros(1), "a"))

    assert back.left is target
    assert target.random() == np.random.default_rng(1).random()


@pytest.mark.parametrize("kind", [functools.partial, jax.tree_util.Partial])
def test_an_array_bound_in_a_partial_comes_back(trip, kind: Any):
    """A large array reads like any other in a name: taken for a part of the name, its values would be lost."""
    values = np.zeros(3000, np.float32)
    values[1500] = 1
    saved, target = (kind(jnp.dot, np.array(array)) for array in (values, 0 * values))

    back = trip.restored([saved], [target])[0]

    assert (type(back), back.func) == (kind, jnp.dot)
    assert back.args[0].tolist() == values.tolist()


def test_none_leaves_and_empty_nodes_come_back(trip):
    saved = {"a": None, "b": (), "c": [WithoutKeys()], "d": optax.EmptyState(), "e": jnp.ones(1)}
    target = {"a": None, "b": (), "c": [WithoutKeys()], "d": optax.EmptyState(), "e": jnp.zeros(1)}

    back = trip.restored(saved, target)

    assert_equal(back, saved)
    assert type(back["d"]) is optax.EmptyState
