"""Containers: kinds, keys and order come back; lengths must match unless the content is plain data."""

import argparse
import copy
import dataclasses
import enum
import functools
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import numpy as np
import pytest

from perdure.errors import ContractError


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"


class Pair(NamedTuple):
    left: Any
    right: Any


class Empty(NamedTuple):
    pass


@dataclasses.dataclass
class Plain:
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(slots=True)
class Slots:
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    x: Any
    y: Any = 0


def plain(x: Any, y: Any) -> Plain:
    return Plain(x, y)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


X = np.arange(3.0)


@pytest.mark.parametrize(
    ("saved", "target"),
    [
        pytest.param({"b": 1, "a": [2]}, {"b": 0, "a": [0]}, id="dict"),
        pytest.param({1: "int", "1": "str"}, {1: "", "1": ""}, id="int and str keys"),
        pytest.param(OrderedDict(b=1, a=X), OrderedDict(b=0, a=X * 0), id="OrderedDict"),
        pytest.param(argparse.Namespace(a=1, b=X), argparse.Namespace(a=0, b=X * 0), id="argparse.Namespace"),
        pytest.param([1, [2.0, "x"]], [0, [0.0, ""]], id="list"),
        pytest.param((1, (2, None)), (0, (0, None)), id="tuple"),
        pytest.param(deque([1, 2], maxlen=3), deque([0, 0], maxlen=3), id="deque"),
        pytest.param(Pair(1, [X]), Pair(0, [X * 0]), id="named tuple"),
        pytest.param(Empty(), Empty(), id="empty named tuple"),
        pytest.param(Plain(1, [X]), Plain(0, [X * 0]), id="dataclass"),
        pytest.param(Frozen(X), Frozen(X * 0), id="frozen dataclass"),
        pytest.param(Slots(1, X), Slots(0, X * 0), id="dataclass with slots"),
        pytest.param(FrozenSlots(1, X), FrozenSlots(0, X * 0), id="frozen dataclass with slots"),
        pytest.param(functools.partial(plain, 1, y=X), functools.partial(plain, 0, y=X * 0), id="partial"),
    ],
)
def test_a_container_comes_back_with_its_type_and_content(trip, saved: Any, target: Any):
    back = trip.restored(saved, target)

    assert type(back) is type(saved)
    assert repr(back) == repr(saved)
    assert back is not target or not len(repr(target)) > len("Empty()")


def test_the_saved_order_of_keys_comes_back(trip):
    back = trip.restored({"z": rng(1), "a": rng(2)}, {"a": rng(3), "z": rng(4)})

    assert list(back) == ["z", "a"]


def test_a_target_is_never_changed_in_place_when_it_holds_values(trip):
    target = {"list": [0], "queue": deque([0]), "data": Plain(0)}
    before = copy.deepcopy(target)

    trip.restored({"list": [1], "queue": deque([1]), "data": Plain(1)}, target)

    assert target == before


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda it: {"a": next(iter(it))}, lambda it: Pair(next(iter(it)), 1), deque]
)
def test_live_objects_in_a_container_are_restored_in_place(trip, kind: Any):
    inner, source = rng(2), rng(1)

    back = trip.restored(kind([source]), kind([inner]))

    assert next(iter(back.values() if isinstance(back, dict) else back)) is inner
    assert inner.bit_generator.state == source.bit_generator.state


# Plain data may grow.


@pytest.mark.parametrize(
    ("saved", "target"),
    [
        pytest.param([1.0, 2.0], [], id="a history"),
        pytest.param([], [1.0], id="an emptied list"),
        pytest.param([{"r": 1.0, "l": 3}], [], id="a list of episodes"),
        pytest.param([np.arange(2), np.arange(3)], [np.arange(1)], id="a list of arrays"),
        pytest.param({"a": 1, "b": [2]}, {}, id="a table"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, id="a nested table"),
        pytest.param({"info": None}, {"info": {"x": 1}}, id="a dict that has become None"),
        pytest.param({"info": {"x": 1}}, {"info": None}, id="None that has become a dict"),
        pytest.param({"last": 5}, {"last": [1]}, id="a list that has become a number"),
        pytest.param({"last": [1, 2]}, {"last": 5}, id="a number that has become a list"),
        pytest.param({"last": (1, 2)}, {"last": (1,)}, id="a tuple that has grown in a table"),
        pytest.param(deque([1, 2, 3], 5), deque(maxlen=5), id="a deque"),
        pytest.param(deque([X, X + 1], 5), deque([X], 5), id="a deque of arrays"),
        pytest.param({"visits": {1: 2, 7: 1}}, {"visits": {1: 0}}, id="int keys"),
        pytest.param(OrderedDict(a=1), OrderedDict(), id="OrderedDict"),
    ],
)
def test_plain_data_may_have_changed_its_shape(trip, saved: Any, target: Any):
    back = trip.restored(saved, target)

    assert type(back) is type(saved)
    assert repr(back) == repr(saved)


def test_what_is_shared_in_grown_data_stays_shared(trip):
    row = [1, 2]

    back = trip.restored([row, {"row": row}], [])

    assert back[0] is back[1]["row"]


class Box:
    def __init__(self, x: int) -> None:
        self.x = x

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x = state["x"]


NOT_PLAIN = {
    "a named tuple": Pair(1, 2),
    "a dataclass": Plain(1, 2),
    "a deque": deque([1.0], maxlen=5),
    "an OrderedDict": OrderedDict(a=1),
    "a generator": np.random.default_rng(1),
    "an object": Box(1),
    "a partial": functools.partial(int, base=2),
    "a member of an enum": Level.HIGH,
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
@pytest.mark.parametrize(
    ("around", "target"),
    [
        (lambda x: [x], []),
        (lambda x: deque([x]), deque()),
        (lambda x: {"a": x}, {}),
        (lambda x: {"a": {"b": [x]}}, {"a": {}}),
        (lambda x: x, None),
    ],
    ids=["list", "deque", "dict", "nested dict", "None"],
)
def test_what_is_no_plain_data_is_never_rebuilt_as_something_else(trip, kind: str, around: Any, target: Any):
    """A target that has nothing in it yet tells no types: the content comes back with its own, or is refused."""
    saved = around(NOT_PLAIN[kind])

    try:
        back = trip.restored(saved, target)
    except ContractError:
        return
    assert kinds(back) == kinds(saved)


def kinds(obj: Any) -> Any:
    """The types in a nested container."""
    match obj:
        case dict():
            return type(obj), {key: kinds(value) for key, value in obj.items()}
        case list() | tuple() | deque():
            return type(obj), [kinds(value) for value in obj]
        case _:
            return type(obj)


@pytest.mark.parametrize("frames", [1, 4])
def test_the_same_frame_many_times_in_a_deque_as_a_frame_stack_holds_it_after_a_reset(trip, frames: int):
    frame = np.zeros((2, 2), np.uint8)

    back = trip.restored(deque([frame] * frames, frames), deque([frame + 1], frames))

    assert [part.tolist() for part in back] == [[[0, 0], [0, 0]]] * frames
    assert all(part is back[0] for part in back)


def test_an_object_shared_between_a_deque_and_something_else_stays_shared(trip):
    frame = [1, 2]

    back = trip.restored({"a": deque([frame]), "b": frame}, {"a": deque(), "b": []})

    assert back["a"][0] is back["b"]


def test_a_shared_mutable_dataclass_stays_shared(trip):
    """Two places that hold one counter must not come apart: the next increment would be lost in one of them."""
    shared, target = Plain(5), Plain(0)

    back = trip.restored([shared, {"again": shared}], [target, {"again": target}])

    assert (back[0].x, back[1]["again"].x) == (5, 5)
    assert back[0] is back[1]["again"]


# Findings.


@pytest.mark.parametrize(
    ("saved", "target", "findings"),
    [
        pytest.param([rng()], [rng(), rng()], [("c", "list of 1", "list of 2")], id="a longer list"),
        pytest.param((1, 2), (1,), [("c", "tuple of 2", "tuple of 1")], id="a shorter tuple"),
        pytest.param([1], (1,), [("c", "list of 1", "tuple of 1")], id="a tuple for a list"),
        pytest.param((1,), [1], [("c", "tuple of 1", "list of 1")], id="a list for a tuple"),
        pytest.param({"a": 1}, [1], [("c", "dict of 1", "list of 1")], id="a list for a dict"),
        pytest.param([1, 2], {"a": 1}, [("c", "list of 2", "1 named parts")], id="a dict for a list"),
        pytest.param(
            {"a": rng(), "b": 1}, {"a": rng(), "c": 2}, [("c/b", "1", "missing"), ("c/c", "missing", "int")], id="keys"
        ),
        pytest.param(
            {1: rng()}, {"1": rng()}, [("c/1", "dict of 1", "missing"), ('c/"1"', "missing", "Generator")], id="1"
        ),
        pytest.param(deque([1], 3), deque([1], 4), [("c", "maxlen 3", "maxlen 4")], id="maxlen"),
        pytest.param(deque([1], 3), deque([1]), [("c", "maxlen 3", "maxlen None")], id="no maxlen"),
        pytest.param([1], deque([1]), [("c", "list of 1", "a deque")], id="a deque for a list"),
        pytest.param(
            Pair(1, 2), Plain(1), [("c/left", "1", "missing"), ("c/right", "2", "missing")], id="other fields"
        ),
        pytest.param(Plain(X), Plain(X[:2]), [("c/x", "float64 3", "float64 2")], id="a field"),
        pytest.param(
            functools.partial(int, base=2),
            functools.partial(int, 1),
            [("c/args", "tuple of 0", "tuple of 1")],
            id="args",
        ),
        pytest.param(
            functools.partial(dict, key=X),
            functools.partial(dict, key=X[:2]),
            [("c/keywords/key", "float64 3", "float64 2")],
            id="a keyword",
        ),
        pytest.param(
            functools.partial(str, 1),
            functools.partial(print, 1),
            [("c", "partial of class builtins:str", "partial of function builtins:print")],
            id="another function",
        ),
    ],
)
def test_another_structure_is_a_finding(trip, saved: Any, target: Any, findings: list[tuple[str, str, str]]):
    assert trip.findings(saved, target)[: len(findings)] == findings


def test_a_missing_part_is_told_with_the_way_out(trip):
    refusal = trip.refusal({"a": rng(), "b": 1}, {"a": rng()})

    assert str(refusal.findings[0]) == "c/b: 1 in the run, missing here. Build it with the same parts as the run did."
