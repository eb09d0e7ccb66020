"""Changes that hide: in attributes that are no bare numbers, in closures, behind `jit`, in classes of settings."""

import dataclasses
import enum
import functools
from collections.abc import Callable
from pathlib import Path
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


class Mode(enum.Enum):
    A = "a"
    B = "b"


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
