"""Plain Python objects inside an environment come back as they were, into a twin that holds other ones or none."""

from __future__ import annotations

import enum
import functools
import threading
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from perdure.adapters.gymnasium_classes import class_name, find_class, is_plain  # noqa: E402
from perdure.adapters.resolve import Resolver  # noqa: E402
from perdure.checkpoint.restore import restore  # noqa: E402
from perdure.tree.snapshot import Snapshot  # noqa: E402


class Door:
    def __init__(self, color: str, is_open: bool = False) -> None:
        self.color, self.is_open = color, is_open
        self.contains: Any = None


class Slots:
    __slots__ = ("__hidden", "x")

    def __init__(self, x: int, hidden: int = 0) -> None:
        self.x, self.__hidden = x, hidden

    def hidden(self) -> int:
        return self.__hidden


class Heading(enum.Enum):
    NORTH = 0
    EAST = 1


class Keys(enum.Flag):
    RED = 1
    BLUE = 2


@dataclass
class Room:
    size: int
    doors: list[Door] = field(default_factory=list)


@dataclass(frozen=True)
class Spot:
    x: int
    y: int


class Move(NamedTuple):
    heading: Heading
    steps: int


class Constant:
    """Compared by `is`, as sentinels are."""


NOTHING = Constant()


class WithFinaliser:
    def __del__(self) -> None:
        """Stands for code that would run."""


class World(gymnasium.Env):
    """An environment that holds what a test gives it."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


def _of(value: Any) -> Any:
    """Something that `==` compares, with classes and without identities."""
    if isinstance(value, Door | Room | Spot | Constant):
        return type(value).__name__, {name: _of(part) for name, part in vars(value).items()}
    if isinstance(value, Slots):
        return value.x, value.hidden()
    if isinstance(value, dict):
        return type(value), [(key, _of(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), getattr(value, "maxlen", None), [_of(part) for part in value]
    return type(value), value.tolist() if isinstance(value, np.ndarray) else value


VALUES: dict[str, Callable[[], Any]] = {
    "object": lambda: Door("red", is_open=True),
    "object in an object": lambda: _with(Door("red"), contains=Door("blue")),
    "list of objects": lambda: [Door("red"), None, Door("blue", is_open=True)],
    "slots": lambda: Slots(3, hidden=7),
    "enum": lambda: Heading.EAST,
    "flags": lambda: Keys.RED | Keys.BLUE,
    "dataclass": lambda: Room(3, [Door("red")]),
    "frozen dataclass": lambda: Spot(1, 2),
    "named tuple": lambda: Move(Heading.NORTH, 3),
    "deque": lambda: deque([Door("red"), Door("blue")], maxlen=5),
    "ordered dict": lambda: OrderedDict(b=Door("red"), a=Door("blue")),
    "set": lambda: {(3, 1), (1, 2), (9, 9)},
    "set of text": lambda: {"red", "green", "blue"},
    "set of members": lambda: {Heading.EAST, Heading.NORTH},
    "frozen set": lambda: frozenset({1, 5}),
    "default dict": lambda: defaultdict(int, {(1, 2): 3}),
    "default dict of objects": lambda: defaultdict(list, {Heading.EAST: [Door("red")], "b": []}),
    "counter": lambda: Counter("abba"),
    "bytes": lambda: bytearray(b"abc"),
    "numbers": lambda: array("d", [0.5, 2]),
    "dict by places": lambda: {(1, 2): Door("red"), (0, 0): None},
    "dict by members": lambda: {Heading.EAST: 1, Heading.NORTH: np.arange(3)},
    "generator in an object": lambda: _with(Door("red"), contains=np.random.default_rng(4).bit_generator.state),
}


def _with(obj: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(obj, name, value)
    return obj


TARGETS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "nothing": lambda make: None,
    "the same": lambda make: make(),
    "another object": lambda make: Door("green"),
    "a list": lambda make: [Door("green"), Door("white"), Door("black"), 4],
    "a number": lambda make: 3,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", VALUES)
def test_whatever_the_twin_holds_the_saved_objects_come_back(trip, name: str, target: str):
    source, twin = World(held=VALUES[name]()), World(held=TARGETS[target](VALUES[name]))

    trip.restored(source, twin)

    assert _of(twin.held) == _of(source.held)


@pytest.mark.parametrize("name", VALUES)
def test_an_object_comes_back_as_plain_data_where_the_run_held_none_yet(trip, name: str):
    twin = World(held=VALUES[name]())

    trip.restored(World(held=None), twin)

    assert twin.held is None


def test_a_twin_s_object_of_the_same_class_takes_the_state(trip):
    twin = World(door=Door("green"))
    before = twin.door

    trip.restored(World(door=Door("red", is_open=True)), twin)

    assert (twin.door is before, before.color, before.is_open) == (True, "red", True)


def test_attributes_that_the_run_s_object_did_not_have_go(trip):
    twin = World(door=_with(Door("green"), extra=1))

    trip.restored(World(door=Door("red")), twin)

    assert sorted(vars(twin.door)) == ["color", "contains", "is_open"]


def test_two_places_of_one_object_share_it_again_and_others_do_not(trip):
    shared, twin_s = Door("red"), Door("green")
    source = World(carrying=shared, grid=[Door("blue"), shared, None], last=Door("blue"))
    twin = World(carrying=None, grid=[twin_s, twin_s, twin_s], last=twin_s)

    trip.restored(source, twin)

    assert twin.carrying is twin.grid[1]
    assert len({id(twin.carrying), id(twin.grid[0]), id(twin.last)}) == 3


def test_cycles_come_back(trip):
    def world() -> World:
        first, second = Door("red"), Door("blue")
        first.contains, second.contains = second, [first]
        env = World(first=first, around=[])
        env.around.append(env)
        return env

    twin = World(first=None, around=None)

    trip.restored(world(), twin)

    assert twin.first.contains.contains[0] is twin.first
    assert twin.around[0] is twin


def test_a_constant_of_a_module_stays_that_very_object_and_takes_no_state(trip):
    twin = World(cell=NOTHING, other=NOTHING)

    trip.restored(World(cell=_with(Constant(), level=3), other=NOTHING), twin)

    assert (twin.other is NOTHING, twin.cell is not NOTHING, twin.cell.level) == (True, True, 3)
    assert vars(NOTHING) == {}


def test_generators_and_methods_of_objects_go_on(trip):
    def world(seed: int, *, used: bool) -> World:
        env = World(dice=_with(Door("red"), contains=np.random.default_rng(seed)))
        env.throw = env.dice.contains.integers if used else None
        env.dice.shown = functools.partial(round, 1)
        return env

    source, twin = World(dice=np.random.default_rng(3), spare=None), World(dice=None, spare=Door("red"))
    source.dice.random(5)

    trip.restored(source, twin)

    assert twin.dice.random() == source.dice.random()


def _bound(value: Any) -> Callable[[], Any]:
    return lambda: value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {Door("red")}, r"c/held: a set's item is a Door, .* go through them in another order\. Use a list"),
        (lambda: {Door("red"): 1}, r"c/held: a dict's key is a Door"),
        (lambda: WithFinaliser(), r"c/held: no adapter knows a .*WithFinaliser.*perdure\.gym\.Recorded\(env\)"),
        (lambda: [Door("red"), threading.Lock()], r"c/held/1: no adapter knows a _thread\.lock"),
        (
            lambda: _with(Door("red"), contains=_bound(threading.Lock())),
            r"c/held/contains: the function .* binds value, an object of .*lock",
        ),
    ],
    ids=["set of objects", "objects as keys", "finaliser", "lock", "function"],
)
def test_what_cannot_come_back_exactly_is_refused_by_its_place(trip, make: Callable[[], Any], message: str):
    with pytest.raises(TypeError, match=message):
        trip.tree(World(held=make()))


def test_a_function_that_the_twin_does_not_hold_is_a_finding(trip):
    assert ("c/held/contains", "None", "nothing") in trip.findings(
        World(held=_with(Door("red"), contains=len)), World(held=Door("red"))
    )


def _forged(trip, name: str) -> Snapshot:
    snapshot = trip.saved(World(held=Door("red")))
    snapshot.components["c"].tree["held"]["class"] = name
    return snapshot


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such.Thing", "no such class has been imported"),
        (class_name(WithFinaliser), "a class of another sort"),
        ("builtins.int", "a class of another sort"),
        ("subprocess.Popen", "a class of another sort"),
    ],
)
def test_a_file_names_classes_and_makes_none_of_them_run(trip, name: str, problem: str):
    """Nothing is imported, and no object of a class with a finaliser or a layout of its own is made."""
    with pytest.raises(ValueError, match=problem):
        restore(_forged(trip, name), {"c": World(held=None)}, Resolver(), "step")


@pytest.mark.parametrize("kind", [Door, Slots, Spot, Room, Constant])
def test_plain_classes(kind: type):
    assert is_plain(kind)
    assert find_class(class_name(kind)) is kind


class Numbers(list):
    """Keeps its items where a walk over attributes does not look."""


@pytest.mark.parametrize("kind", [int, Numbers, WithFinaliser, Heading, threading.Thread, type, ValueError])
def test_classes_that_are_not(kind: type):
    assert is_plain(kind) is (kind is threading.Thread)


@pytest.mark.parametrize(
    "change",
    [
        lambda env: setattr(env.grid[0], "is_open", False),
        lambda env: setattr(env, "carrying", Door("red")),
        lambda env: env.seen.discard((1, 2)),
        lambda env: setattr(env, "heading", Heading.NORTH),
    ],
    ids=["attribute", "object", "set", "enum"],
)
def test_twin_what_is_lost_after_the_restore_is_found(trip, change: Callable[[World], None]):
    source = World(grid=[Door("red", is_open=True)], carrying=None, seen={(1, 2)}, heading=Heading.EAST)
    twin = trip.restored(source, World(grid=[], carrying=None, seen=None, heading=None))

    change(twin)

    assert trip.digest(twin) != trip.digest(source)
