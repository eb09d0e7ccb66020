"""Named tuples and classes that derive from containers are compared, and put right, like Python's own."""

import collections
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.oneshot import read_snapshot, save_snapshot_at
from perdure.memory.containers import plain_of
from perdure.memory.look import Look, Roots, look
from perdure.memory.slots import put_saved
from perdure.memory.values import ITERATOR, digest_of_value, kind_of, packed, position


class State(NamedTuple):
    """As of an optimizer of JAX."""

    mean: np.ndarray
    steps: int


class Returns(collections.deque):
    """With a method, and what would go wrong if methods of the user were called."""

    def __iter__(self) -> Any:
        raise AssertionError("a look runs nothing of the user's")

    def clear(self) -> None:
        raise AssertionError("nor does putting a value right")


class Config(dict):
    """Attributes beside the items."""

    changes = 0


class Holder:
    """Has all of them."""

    def __init__(self, by: int) -> None:
        self.state = (State(np.full(2, float(by)), by), "name")
        self.returns = Returns([by] * by, maxlen=9)
        self.config = Config(rate=by)
        self.config.changes = by


def seen(holder: Holder) -> Look:
    return look(Roots({"agent": holder}), {}, Resolver(), {})


def transferred(path: str, tmp_path: Path) -> tuple[Holder, Look]:
    """The value at a path of one holder is put into another one."""
    one, other = seen(Holder(3)), Holder(1)
    snapshot, problems = packed({0: one.targets[path].value}, Resolver())
    assert problems == {}
    save_snapshot_at(tmp_path / "values", snapshot)
    target = seen(other).targets[path]
    put_saved(target, read_snapshot(tmp_path / "values"), 0, Resolver(), in_place=True)
    return other, one


PATHS = {
    "component agent.state[0](mean)": "component agent.state[0]",
    "component agent.state[0](steps)": "component agent.state[0]",
    "component agent.returns": "component agent.returns",
    "component agent.config": "component agent.config",
    "component agent.config.changes": "component agent.config.changes",
}
"""Path -> what it is a part of."""


@pytest.mark.parametrize("path", PATHS)
def test_seen_and_put_right(path: str, tmp_path: Path):
    other, one = transferred(path, tmp_path)
    now = seen(other)

    assert one.values[path].unit == PATHS[path]
    assert now.values[path].digest == one.values[path].digest != seen(Holder(1)).values[path].digest
    differing = {
        each for each in one.values if each in now.values and now.values[each].digest != one.values[each].digest
    }
    assert differing == PATHS.keys() - {path}, "and nothing else"


def test_fields_of_a_named_tuple_are_put_one_after_the_other():
    holder = Holder(1)
    found = seen(holder)
    for field, value in {"mean": np.zeros(1), "steps": 7}.items():
        put = found.targets[f"component agent.state[0]({field})"].put
        assert put is not None
        put(value)

    [state, name] = holder.state
    assert (type(state), state.mean.tolist(), state.steps, name) == (State, [0.0], 7, "name")


def test_the_content_of_a_subclass():
    assert plain_of(Returns([1, 2], maxlen=3)) == collections.deque([1, 2])
    assert plain_of(Returns([1, 2], maxlen=3)).maxlen == 3
    assert type(plain_of(Config(a=1))) is dict
    ordered = type("Ordered", (collections.OrderedDict,), {})(b=1, a=2)
    assert plain_of(ordered) == collections.OrderedDict(b=1, a=2)
    assert plain_of(ordered) != collections.OrderedDict(a=2, b=1)


MAKERS = {
    "zip": lambda: zip([1, 2, 3], (4, 5, 6), strict=True),
    "enumerate": lambda: enumerate([1, 2, 3]),
    "cycle": lambda: itertools.cycle([1, 2]),
    "chain": lambda: itertools.chain([1, 2], [3]),
    "islice": lambda: itertools.islice(itertools.count(), 9),
}


@pytest.mark.parametrize("name", MAKERS)
def test_iterators_over_iterators_by_how_far_they_are(name: str):
    one, other = MAKERS[name](), MAKERS[name]()
    places = [position(one)]
    for _ in range(3):
        next(one)
        places.append(position(one))
    assert kind_of(one) == ITERATOR
    # Three steps through a cycle of two: its second place, the first time with less kept.
    assert len(set(places)) == 4
    for _ in range(3):
        next(other)

    assert position(other) == position(one)
    assert digest_of_value(other, Resolver()) == digest_of_value(one, Resolver())
