"""A look finds every value by its access path, runs nothing of the user's and changes nothing."""

import itertools
import random
import sys
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.memory.frames import Loop, looked_at, loop_around
from perdure.memory.look import Look, Roots, Seen, look


class Agent:
    shared = 3

    def __init__(self) -> None:
        self.rate, self.weights, self.rng = 0.5, np.arange(3.0), np.random.default_rng(1)
        self.own = {"nested": [1, {"deep": (2.0, "x")}], "rng": random.Random(1)}

    @property
    def trap(self) -> float:
        raise AssertionError("a look called a property")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a look asked for {name}")


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 1


def values(obj: Any, held: dict[int, Any] | None = None) -> dict[str, Seen]:
    return look(Roots({"agent": obj}), held or {}, Resolver(), {}).values


def changed(obj: Any, change: Any) -> list[str]:
    """The paths whose digests another look finds changed."""
    before = values(obj)
    change()
    after = values(obj)
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def test_attributes_items_and_generators_have_paths():
    found = values(Agent())

    assert found.keys() == {
        "component agent.rate",
        "component agent.weights",
        "component agent.rng",
        "component agent.own['nested']",
        "component agent.own['rng']",
    }
    assert found["component agent.rate"].shows == "0.5"
    assert found["component agent.weights"].shows == "float64[3]"


def test_slots_closures_bound_methods_and_partials():
    count = 5

    def counted() -> int:
        return count

    obj = SimpleNamespace(slotted=Slotted(), function=counted, method=Slotted().__init__)

    assert {path.removeprefix("component agent") for path in values(obj)} == {
        ".slotted.count",
        ".function.<count>",
        ".method.__self__.count",
    }


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: np.random.default_rng(1), lambda rng: rng.random()),
        (lambda: np.random.RandomState(1), lambda rng: rng.rand()),
        (lambda: random.Random(1), lambda rng: rng.random()),
        (lambda: np.zeros((2, 2)), lambda array: array.__setitem__((1, 1), -0.0)),
        (lambda: deque([1.0], maxlen=3), lambda queue: queue.append(2.0)),
        (lambda: {1: {2: [3]}}, lambda table: table[1][2].append(4)),
        (lambda: {1, 2}, lambda items: items.add(3)),
        (lambda: bytearray(b"a"), lambda buffer: buffer.append(1)),
        (lambda: itertools.count(), next),
        (lambda: iter([1, 2, 3]), next),
        (lambda: iter(range(9)), next),
        (lambda: (x for x in range(9)), next),
        (Slotted, lambda obj: setattr(obj, "count", 2)),
    ],
)
def test_each_kind_of_value_shows_its_change_and_a_look_makes_none(make: Any, change: Any):
    obj = SimpleNamespace(it=make(), other=[1])

    assert changed(obj, lambda: values(obj)) == []
    [path] = changed(obj, lambda: change(obj.it))
    assert path.startswith("component agent.it")


def test_a_generator_is_not_drawn_from_by_looks():
    rng, twin = np.random.default_rng(7), np.random.default_rng(7)
    values(SimpleNamespace(rng=rng))

    assert rng.random() == twin.random()


def test_equal_values_of_other_types_are_other_values():
    digests = [
        values(SimpleNamespace(it=value))["component agent.it"].digest for value in (1, 1.0, True, "1", b"1", -0.0, 0.0)
    ]

    assert len(set(digests)) == 7


def test_what_the_snapshot_holds_is_said_to_be_held():
    agent = Agent()
    found = values(agent, {id(agent.weights): agent.weights})

    assert [path for path, seen in found.items() if seen.held] == ["component agent.weights"]


def test_objects_of_libraries_are_one_unit_and_those_of_the_user_are_looked_into():
    pytest.importorskip("gymnasium")
    from gymnasium.spaces import Box

    space = Box(-1.0, 1.0, (3,))
    space.seed(1)
    found = values(SimpleNamespace(space=space, own=SimpleNamespace(low=np.zeros(1))))

    assert {seen.unit for path, seen in found.items() if ".space" in path} == {"component agent.space"}
    assert found["component agent.own.low"].unit == "component agent.own.low"


def test_what_contains_itself_ends():
    loop: list[Any] = [1.0]
    loop.append(loop)
    obj = SimpleNamespace(loop=loop)
    obj.me = obj

    assert values(obj)["component agent.loop[0]"].shows == "1.0"


def frame_of_here() -> tuple[dict[str, Any], Look]:
    eps = 0.25
    frames = looked_at(sys._getframe())
    found = look(Roots(frames=frames), {}, Resolver(), {})
    found.targets["frame frame_of_here: eps"].put(0.75)  # type: ignore[misc]
    return {"eps": eps}, found


def test_variables_of_frames_are_read_and_put():
    after, found = frame_of_here()

    assert found.values["frame frame_of_here: eps"].shows == "0.25"
    assert after == {"eps": 0.75}


def test_modules_of_the_user(tmp_path: Path):
    module = ModuleType("train")
    module.HISTORY = [1.0]  # type: ignore[attr-defined]
    found = look(Roots(modules={"train": module}), {}, Resolver(), {})
    put = found.targets["module train: HISTORY"].put
    assert put is not None
    put([2.0])

    assert vars(module)["HISTORY"] == [2.0]


def test_the_loop_around_a_call():
    found = None
    for _ in range(1):
        found = loop_around(sys._getframe())

    assert isinstance(found, Loop)
    assert found.function == "test_the_loop_around_a_call"
    line = Path(__file__).read_text("utf-8").splitlines()[found.line - 1]
    assert line.strip() == "found = loop_around(sys._getframe())"
