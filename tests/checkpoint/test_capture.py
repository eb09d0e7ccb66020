"""Capture: one immutable value of all components, without a trace in any of them."""

import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.errors import CaptureError, UnknownObjectError, UsageError
from perdure.format.state_digest import component_digests
from perdure.tree.leaves import Alias


class Box:
    """An object that speaks for itself."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def captured(**objects: Any) -> Any:
    return capture(objects, Resolver(), Counters(7, 5, 3))


def test_components_are_sorted_by_name_and_the_counters_taken_over():
    snapshot = captured(b=1, a=2).snapshot

    assert list(snapshot.components) == ["a", "b"]
    assert (snapshot.env_steps, snapshot.updates, snapshot.boundary) == (7, 5, 3)
    assert (snapshot.components["a"].adapter, snapshot.components["a"].fidelity) == ("plain", "exact-snapshot")


def test_an_object_that_two_components_share_is_stored_once_whatever_the_order_of_the_names():
    shared = np.zeros(2)

    for objects in ({"a": [shared], "b": {"x": shared}}, {"b": {"x": shared}, "a": [shared]}):
        components = captured(**objects).snapshot.components
        assert components["a"].tree[0].value is shared
        assert components["b"].tree == {"x": Alias(("a", 0))}


def test_equal_but_distinct_objects_are_not_shared():
    components = captured(a=np.zeros(2), b=np.zeros(2), c=[1], d=[1]).snapshot.components

    assert not any(isinstance(component.tree, Alias) for component in components.values())


def test_capturing_leaves_no_trace():
    rng, python_rng, box = np.random.default_rng(1), random.Random(1), Box(rng=np.random.default_rng(2))
    objects = {"rng": rng, "python": python_rng, "box": box, "x": np.arange(3), "d": deque([1], 3)}
    before = repr((rng.bit_generator.state, python_rng.getstate(), box.state["rng"].bit_generator.state))
    global_before = repr((random.getstate(), np.random.get_state()))

    first = component_digests(captured(**objects).snapshot)
    second = component_digests(captured(**objects).snapshot)

    assert first == second
    assert repr((rng.bit_generator.state, python_rng.getstate(), box.state["rng"].bit_generator.state)) == before
    assert repr((random.getstate(), np.random.get_state())) == global_before


def test_values_and_live_objects_are_told_apart():
    found = captured(
        number=1,
        array=np.zeros(1),
        none=None,
        rng=np.random.default_rng(0),
        box=Box(x=np.zeros(1)),
        live_list=[np.random.default_rng(1), Box()],
        mixed={"rng": np.random.default_rng(2), "step": 1},
    )

    assert found.values == {"number", "array", "none", "mixed"}


@pytest.mark.parametrize("empty", [[], {}, (), deque(), {"history": []}], ids=repr)
def test_an_empty_container_is_a_value(empty: Any):
    """Whatever it will hold later are values; taking it for a live object would save a stale one."""
    assert captured(history=empty).values == {"history"}


def test_facts_are_noted_by_path_and_are_no_state():
    component = captured(c={"activation": abs, "layers": [np.float32, 1]}).snapshot.components["c"]

    assert component.facts == {"activation": "function builtins:abs", "layers/0": "class numpy:float32"}
    assert component.tree == {"activation": None, "layers": [None, 1]}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "_private", "1st", "a.b", "ünï", "a-b", "MANIFEST.json"])
def test_a_name_that_cannot_be_a_file_is_refused(name: str):
    with pytest.raises(UsageError) as caught:
        captured(**{name: 1})

    assert str(caught.value) == f"component name {name!r}: use a plain identifier, for it names a file."


def test_names_that_differ_in_case_only_are_refused():
    with pytest.raises(UsageError) as caught:
        captured(rng=1, x=2, RNG=3)

    assert str(caught.value) == "component names 'rng' and 'RNG' differ in case only; some disks cannot tell."


def test_an_unknown_object_is_refused_with_its_path_and_the_ways_out():
    class Environment:
        pass

    with pytest.raises(UnknownObjectError) as caught:
        captured(envs={"train": [1, Environment()]})

    message = str(caught.value)
    assert message.startswith("envs/train/1: no adapter knows a ")
    assert "Environment" in message
    for way in ("never pickles", "state_dict() and load_state_dict()", "get_state() and set_state()", "adapters="):
        assert way in message


def test_a_list_that_contains_itself_is_refused():
    loop: list[Any] = [1]
    loop.append({"again": loop})

    with pytest.raises(CaptureError) as caught:
        captured(c=loop)

    assert str(caught.value) == "c/1/again: a list that contains itself."


def test_live_objects_may_contain_themselves():
    box = Box(x=1)
    box.state["me"] = box

    assert captured(box=box).snapshot.components["box"].tree == {"state": {"x": 1, "me": Alias(("box",))}}
