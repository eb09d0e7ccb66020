"""Which adapter knows an object: the user's own first, then the table, then protocols, else an error."""

import enum
import functools
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from perdure.adapters import Walk
from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.resolve import EXACT, INHERITED, Resolver, load
from perdure.errors import Finding, UnknownObjectError
from perdure.tree.leaves import Tree


class Level(enum.IntEnum):
    ONE = 1


class Env:
    def __init__(self, x: int) -> None:
        self.x = x


class Sub(Env):
    pass


class EnvAdapter(ExactAdapter):
    """A user's own adapter."""

    id = "x-env"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        return {"x": obj.x}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        return [] if isinstance(tree, dict) else [walk.finding("something", "an Env", "Use an Env.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        obj.x = tree["x"]
        return obj


class SubAdapter(EnvAdapter):
    id = "x-sub"


class Opaque(EnvAdapter):
    id = "x-opaque"

    def fidelity(self, obj: Any) -> tuple[str, str]:
        return obj.x, f"made so: {obj.x}"


@pytest.mark.parametrize(
    ("obj", "adapter"),
    [
        (None, "plain"),
        (True, "plain"),
        (1, "plain"),
        ("a", "plain"),
        ({}, "dict"),
        (OrderedDict(), "ordered-dict"),
        (functools.partial(int), "partial"),
        (Level.ONE, "enum"),
        ([], "list"),
        ((), "tuple"),
        (np.zeros(1), "numpy-array"),
        (np.float64(1), "numpy-scalar"),
        (np.random.default_rng(0), "numpy-generator"),
        (np.random.RandomState(0), "numpy-random-state"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_table(obj: Any, adapter: str):
    assert Resolver().resolve(obj, ("c",)).id == adapter


def test_the_adapter_of_a_subclass_of_float_is_the_scalar_s():
    """np.float64 is a float by inheritance; taken for one, it would come back as another type."""
    assert Resolver().resolve(np.float64(0), ("c",)).id == "numpy-scalar"


OF_FRAMEWORKS = ("ale_", "flashbax_", "gymnasium_", "jax_", "level_", "mujoco_", "nnx_", "sb3_", "torch_", "torchrl_")
"""How the files of adapters begin that import a framework; their own tests know the ids."""


def test_ids_are_stable_and_distinct():
    targets = {*EXACT.values(), *INHERITED.values()}
    adapters = {load(target).id for target in targets if not target.startswith(OF_FRAMEWORKS)}

    assert adapters == {
        *("plain", "dict", "ordered-dict", "namespace", "list", "tuple", "deque", "partial", "own"),
        *("default-dict", "counter", "set", "frozen-set", "bytearray", "array-array"),
        *("numpy-array", "numpy-scalar", "numpy-generator", "numpy-memmap"),
        *("ring", "prioritized-ring", "omitted"),
        *("numpy-bit-generator", "numpy-seed-sequence", "numpy-random-state", "python-random", "process-rng"),
    }


def test_a_user_s_adapter_serves_its_class_and_subclasses_until_a_closer_one_does():
    mine, closer = EnvAdapter(), SubAdapter()

    assert Resolver([(Env, mine)]).resolve(Sub(1), ("c",)) is mine
    assert Resolver([(Env, mine), (Sub, closer)]).resolve(Sub(1), ("c",)) is closer
    assert Resolver([(Env, mine), (Sub, closer)]).resolve(Env(1), ("c",)) is mine


def test_a_user_s_adapter_comes_before_the_table():
    mine = EnvAdapter()

    assert Resolver([(dict, mine)]).resolve({}, ("c",)) is mine
    assert Resolver().resolve({}, ("c",)).id == "dict"


def test_a_user_s_adapter_saves_and_restores(trip_with):
    target = Env(0)

    assert trip_with([(Env, EnvAdapter())]).restored([Env(5)], [target])[0] is target
    assert target.x == 5


def test_a_component_bears_the_weakest_class_that_its_parts_allow(trip_with):
    trip = trip_with([(Env, Opaque())])
    parts = [Env(name) for name in ("exact-snapshot", "statistical", "exact-replay")]  # pyright: ignore[reportArgumentType]

    component = trip.component(parts)

    assert (component.fidelity, component.reason) == ("statistical", "c/1: made so: statistical")
    assert trip.component([1]).fidelity == "exact-snapshot"


def test_what_nothing_knows_is_an_error_that_names_the_place_and_every_way_out():
    with pytest.raises(UnknownObjectError) as caught:
        Resolver().resolve(Env(1), ("envs", "train", 0))

    assert str(caught.value) == (
        f"envs/train/0: no adapter knows a {__name__}.Env, and perdure never pickles. Give its class state_dict() and "
        "load_state_dict(), or get_state() and set_state(); or hand an adapter for it to "
        "Run(adapters=[(Class, adapter)]); or leave the object out and rebuild it at start."
    )
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("obj", "way_out"),
    [
        (
            lambda: 0.5,
            "a builtins.function, and perdure never pickles. What a function binds or counts cannot be put back.",
        ),
        ((number for number in range(3)), "a builtins.generator, and perdure never pickles. Keep what"),
    ],
    ids=["function", "generator"],
)
def test_what_nobody_can_give_methods_to_has_ways_out_of_its_own(obj: Any, way_out: str):
    with pytest.raises(UnknownObjectError) as caught:
        Resolver().resolve(obj, ("epsilon",))

    assert str(caught.value).startswith(f"epsilon: no adapter knows {way_out}")
    assert "Give its class" not in str(caught.value)
