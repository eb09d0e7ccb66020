"""Changes that hide: in attributes that are no bare numbers, in closures, behind `jit`, in classes of settings."""

import dataclasses
import enum
import functools
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import perdure

pytestmark = pytest.mark.jax


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class OtherSettings:
    rate: float = 0.1


class Pair(NamedTuple):
    rate: float

    def twice(self) -> float:
        return 2 * self.rate


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    weight: float


class SlottedReward:
    __slots__ = ("weight",)

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def reward(self, x: float) -> float:
        return self.weight * x


@jax.tree_util.register_pytree_node_class
class Static:
    """A pytree with one child, and static data."""

    def __init__(self, data: Any, child: Any = 1.0) -> None:
        self.data, self.child = data, child

    def tree_flatten(self) -> Any:
        return (self.child,), (self.data,)

    @classmethod
    def tree_unflatten(cls, data: Any, children: Any) -> "Static":
        return cls(data[0], children[0])


class Mode(enum.Enum):
    A = "a"
    B = "b"


class OtherMode(enum.Enum):
    A = "a"


class Reward:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def reward(self, x: float) -> float:
        return self.weight * x


class Relu:
    activation = nnx.relu
    rate = 0.1


class Tanh:
    activation = nnx.tanh
    rate = 0.1


class Net(nnx.Module):
    def __init__(self, attribute: Any) -> None:
        self.layer = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
        self.attribute = attribute


def binding(value: Any) -> Callable[[float], Any]:
    return lambda x: (value, x)


def module(value: Any) -> dict[str, Any]:
    return {"components": {"net": Net(value)}}


def config(value: Any) -> dict[str, Any]:
    return {"config": {"x": value}}


def component(value: Any) -> dict[str, Any]:
    return {"components": {"x": value}}


def shared(settings: Any) -> dict[str, Any]:
    """A component that is an attribute of a module, too."""
    return {"components": {"a_settings": settings, "net": Net(settings)}}


def with_class_attribute(value: float) -> dict[str, Any]:
    class Scaled(Net):
        scale = value

    return {"components": {"net": Scaled(1)}}


def optimizer(tx: Any) -> dict[str, Any]:
    net = Net(1)
    return {"components": {"net": net, "optimizer": nnx.Optimizer(net, tx, wrt=nnx.Param)}}


def table(rate: float) -> Any:
    values = jnp.linspace(rate, 0.0, 1000)
    return optax.sgd(jax.jit(lambda count: values[count]))


def keyed(seed: int) -> optax.GradientTransformation:
    key = jax.random.key(seed)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del params
        return jax.tree.map(lambda leaf: leaf + jax.random.normal(key, leaf.shape), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def freezing(names: set[str]) -> optax.GradientTransformation:
    def mask(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: any(getattr(k, "key", 0) in names for k in path), params
        )

    return optax.chain(optax.adam(1e-3), optax.masked(optax.set_to_zero(), mask))


def accumulating(*, mean: bool) -> Any:
    masked = optax.masked(optax.sgd(0.1), nnx.State({"layer": True}))
    return optax.MultiSteps(masked, 2, use_grad_mean=mean)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a dataclass in a module": (module(Settings(0.1)), module(Settings(0.2))),
    "a dict in a module": (module({"rate": 0.1}), module({"rate": 0.2})),
    "a partial in a module": (
        module(functools.partial(nnx.leaky_relu, negative_slope=0.1)),
        module(functools.partial(nnx.leaky_relu, negative_slope=0.2)),
    ),
    "a NumPy number in a module": (module(np.float64(0.1)), module(np.float64(0.2))),
    "an enum in a module": (module(Mode.A), module(Mode.B)),
    "a named tuple in a module": (module(Pair(0.1)), module(Pair(0.2))),
    "a NumPy weight decay": (
        optimizer(optax.adamw(1e-3, weight_decay=np.float64(0.01))),
        optimizer(optax.adamw(1e-3, weight_decay=np.float64(0.1))),
    ),
    "a table behind jit": (optimizer(table(1e-3)), optimizer(table(2e-3))),
    "a key in an update": (optimizer(keyed(0)), optimizer(keyed(1))),
    "the class of a nested configuration": (config(Settings()), config(OtherSettings())),
    "a function as a class attribute": ({"config": Relu()}, {"config": Tanh()}),
    "a class as a configuration": ({"config": Relu}, {"config": Tanh}),
    "a NumPy number in a closure": (config(binding(np.float64(0.5))), config(binding(np.float64(0.6)))),
    "an array in a closure": (config(binding(np.zeros(3))), config(binding(np.ones(3)))),
    "a jitted closure": (config(jax.jit(binding(0.5))), config(jax.jit(binding(0.6)))),
    "a bound method": (config(Reward(0.5).reward), config(Reward(0.6).reward)),
    "a class in a closure": (config(binding(Settings)), config(binding(OtherSettings))),
    "a partial in a closure": (
        config(binding(functools.partial(min, 1))),
        config(binding(functools.partial(min, 2))),
    ),
    "a dataclass in a closure": (config(binding(Settings(0.1))), config(binding(Settings(0.2)))),
    "a set in a closure": (config(binding({1, 2})), config(binding({1, 3}))),
    "a frozen set of tuples in a closure": (
        config(binding(frozenset({(1, "a")}))),
        config(binding(frozenset({(1, "b")}))),
    ),
    "a dataclass with slots in a closure": (config(binding(Slotted(0.1))), config(binding(Slotted(0.2)))),
    "a namespace in a closure": (config(binding(Namespace(w=0.1))), config(binding(Namespace(w=0.2)))),
    "a simple namespace in a closure": (
        config(binding(SimpleNamespace(w=0.1))),
        config(binding(SimpleNamespace(w=0.2))),
    ),
    "a dtype in a closure": (config(binding(np.dtype("f4"))), config(binding(np.dtype("f2")))),
    "a ufunc in a closure": (config(binding(np.tanh)), config(binding(np.sin))),
    "a range in a closure": (config(binding(range(3))), config(binding(range(4)))),
    "a deque in a closure": (config(binding(deque([1]))), config(binding(deque([2])))),
    "a path in a closure": (config(binding(Path("a"))), config(binding(Path("b")))),
    "a dict with tuples as keys": (config(binding({(0, 1): 0.5})), config(binding({(0, 1): 0.25}))),
    "a dict with other tuples as keys": (config(binding({(0, 1): 0.5})), config(binding({(0, 2): 0.5}))),
    "a dict with floats as keys": (config(binding({0.5: 1})), config(binding({0.5: 2}))),
    "a method of an object with slots": (config(SlottedReward(0.5).reward), config(SlottedReward(0.6).reward)),
    "a method of a named tuple": (config(Pair(0.1).twice), config(Pair(0.2).twice)),
    "a set of frozen parameters": (optimizer(freezing({"kernel"})), optimizer(freezing({"bias"}))),
    "an attribute of MultiSteps": (optimizer(accumulating(mean=True)), optimizer(accumulating(mean=False))),
    "a partial of a closure in a module": (
        module(functools.partial(binding(0.1), 1)),
        module(functools.partial(binding(0.3), 1)),
    ),
    "a pytree's partial of a closure in a module": (
        module(jax.tree_util.Partial(binding(0.1), 1)),
        module(jax.tree_util.Partial(binding(0.3), 1)),
    ),
    "a partial of a method in a module": (
        module(functools.partial(Reward(0.1).reward, x=1)),
        module(functools.partial(Reward(0.3).reward, x=1)),
    ),
    "an array without axes in a module": (module(np.asarray(0.1)), module(np.asarray(0.2))),
    "a JAX number in a module": (module(nnx.data(jnp.asarray(0.1))), module(nnx.data(jnp.asarray(0.2)))),
    "a JAX integer in a module": (module(nnx.data(jnp.asarray(3))), module(nnx.data(jnp.asarray(4)))),
    "a short array in a module": (module(np.asarray([0.1, 0.5])), module(np.asarray([0.2, 0.5]))),
    "a list of arrays in a module": (module(nnx.data([np.asarray(0.1)])), module(nnx.data([np.asarray(0.2)]))),
    "a complex number in a module": (module(1j), module(2j)),
    "bytes in a module": (module(b"a"), module(b"b")),
    "an enum of another class in a module": (module(Mode.A), module(OtherMode.A)),
    "metadata of a parameter": (
        module(nnx.Param(jnp.ones(2), lr_scale=0.1)),
        module(nnx.Param(jnp.ones(2), lr_scale=0.5)),
    ),
    "a function as static data": (component(Static(np.tanh)), component(Static(np.sin))),
    "an enum as static data": (component(Static(Mode.A)), component(Static(Mode.B))),
    "a dtype as static data": (component(Static(np.dtype("f4"))), component(Static(np.dtype("f2")))),
    "a closure as static data": (component(Static(binding(0.1))), component(Static(binding(0.3)))),
    "an attribute of a module's class": (with_class_attribute(0.1), with_class_attribute(0.2)),
    "settings that are a component, too": (shared(Settings(0.1)), shared(Settings(0.2))),
    "the sign of zero": (config(0.0), config(-0.0)),
    "a seed in a section": ({"contract": {"env": {"seed": 1}}}, {"contract": {"env": {"seed": 2}}}),
}


def resume(path: Path, start: dict[str, Any], **more: Any) -> perdure.Run:
    options = {name: part for name, part in start.items() if name != "components"}
    run = perdure.Run(path, **options, **more)
    components: dict[str, Any] = start.get("components", {"x": 1})
    run.restore(**components)
    run.close()
    return run


@pytest.mark.parametrize("case", CASES)
def test_a_hidden_change_is_refused(case: str, tmp_path: Path):
    first, second = CASES[case]
    resume(tmp_path / "run", first)

    with pytest.raises(perdure.ContractError):
        resume(tmp_path / "run", second)


@pytest.mark.parametrize("case", CASES)
def test_the_same_start_is_no_change(case: str, tmp_path: Path):
    first, _ = CASES[case]
    resume(tmp_path / "run", first)

    assert resume(tmp_path / "run", first).resumed


def test_a_seed_in_a_section_is_never_accepted(tmp_path: Path):
    first, second = CASES["a seed in a section"]
    resume(tmp_path / "run", first)

    with pytest.raises(perdure.ContractError, match="Section seed takes no acceptance"):
        resume(tmp_path / "run", second, accept=["seed.env.seed=1:2"])


def test_an_accepted_attribute_is_used_however_deep_it_is(tmp_path: Path):
    first, second = CASES["a dataclass in a module"]
    resume(tmp_path / "run", first)

    resume(tmp_path / "run", second, accept={"net/attribute/rate": (0.1, 0.2)})

    assert second["components"]["net"].attribute == Settings(0.2)


@pytest.mark.parametrize(
    ("old", "new", "accept"),
    [
        (np.asarray([0.1, 0.5]), np.asarray([0.2, 0.5]), {"net/attribute": ("[0.1, 0.5]", "[0.2, 0.5]")}),
        (np.asarray(0.1), np.asarray(0.2), {"net/attribute": (0.1, 0.2)}),
        (np.float32(0.1), np.float32(0.2), ["net/attribute=0.10000000149011612:0.20000000298023224"]),
        (nnx.data([np.asarray(0.1)]), nnx.data([np.asarray(0.2)]), {"net/attribute/0": (0.1, 0.2)}),
        (b"a", b"b", {"net/attribute": (b"a", b"b")}),
        (1j, 2j, {"net/attribute": (1j, 2j)}),
    ],
)
def test_accepted_attributes_of_other_kinds_are_used(old: Any, new: Any, accept: Any, tmp_path: Path):
    resume(tmp_path / "run", module(old))
    changed = module(new)
    expected = repr(changed["components"]["net"].attribute)

    resume(tmp_path / "run", changed, accept=accept)

    assert repr(changed["components"]["net"].attribute) == expected


def test_accepted_settings_that_are_a_component_too_are_used(tmp_path: Path):
    resume(tmp_path / "run", shared(Settings(0.1)))
    changed = shared(Settings(0.2))

    resume(tmp_path / "run", changed, accept={"a_settings/rate": (0.1, 0.2)})

    assert changed["components"]["net"].attribute == Settings(0.2)


def test_a_property_in_the_place_of_a_class_s_value_is_not_asked(tmp_path: Path):
    class Scaled(Net):
        scale = 0.1

    class Counting(Scaled):
        @property
        def scale(self) -> float:
            raise AssertionError

    start = {"components": {"net": Counting(1)}}
    resume(tmp_path / "run", start)

    assert resume(tmp_path / "run", start).resumed


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.uniform(key, (4,)),
        lambda key: jax.random.permutation(key, 5),
        lambda key: jax.random.rademacher(key, (8,), jnp.float32),
        lambda key: jax.nn.one_hot(jax.random.randint(key, (), 0, 4), 4),
        lambda key: jax.random.bernoulli(key, shape=(8,)),
        lambda key: jax.random.normal(key, (32,)),
        lambda key: jax.random.key_data(key),
        lambda key: np.asarray(jax.random.normal(key, ()), np.float64),
    ],
)
def test_an_array_that_was_drawn_may_be_drawn_from_another_seed(draw: Callable[[Any], Any], tmp_path: Path):
    resume(tmp_path / "run", module(nnx.data(draw(jax.random.key(0)))))

    assert resume(tmp_path / "run", module(nnx.data(draw(jax.random.key(1))))).resumed


def test_an_update_that_cannot_be_hashed_is_no_obstacle(tmp_path: Path):
    @dataclasses.dataclass
    class Update:
        rate: float

        def __call__(self, updates: Any, state: Any, params: Any = None) -> Any:
            del params
            return jax.tree.map(lambda leaf: self.rate * leaf, updates), state

    def start(rate: float) -> dict[str, Any]:
        return optimizer(optax.GradientTransformation(lambda params: optax.EmptyState(), Update(rate)))

    resume(tmp_path / "run", start(0.1))
    with pytest.raises(perdure.ContractError):
        resume(tmp_path / "run", start(0.2))
