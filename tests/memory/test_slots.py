"""Values are copied from one process and put where they belong in another; what does not fit is refused."""

import itertools
import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.errors import CaptureError
from perdure.memory.slots import Target, of_item, put_saved
from perdure.memory.values import packed


def put(then: Any, now: Any, *, in_place: bool = True) -> dict[str, Any]:
    """What stands in the slot of `now` after the value of `then` was put there."""
    holder = {"it": now}
    snapshot, problems = packed({0: then}, Resolver())
    assert problems == {}
    put_saved(Target(now, of_item(holder, "it")), snapshot, 0, Resolver(), in_place=in_place)
    return holder


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (0.25, 1.0),
        (None, 3),
        ([1, 2.0, "x"], [0]),
        ({"a": [1]}, {}),
        (deque([1, 2], maxlen=3), deque(maxlen=3)),
        ((1, 2), (3,)),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_data(then: Any, now: Any, in_place: bool):
    found = put(then, now, in_place=in_place)["it"]

    assert (type(found), found) == (type(then), then)


def test_containers_and_arrays_are_filled_where_they_stand_or_replaced():
    queue, array = deque([1], maxlen=2), np.zeros(2)

    assert put(deque([5], maxlen=2), queue)["it"] is queue
    assert list(queue) == [5]
    assert put(np.ones(2), array, in_place=False)["it"] is not array
    assert array.tolist() == [0, 0]
    assert put(np.ones(2), array)["it"] is array
    assert array.tolist() == [1, 1]


def test_generators_go_on_as_the_other_one():
    then, now = random.Random(1), random.Random(2)
    then.random()
    put(then, now)
    assert now.random() == then.random()

    drawn, fresh = np.random.default_rng(1), np.random.default_rng(2)
    put(drawn, fresh)
    assert fresh.random() == drawn.random()


def numbers():
    number = 0
    while True:
        number += 1
        yield number


@pytest.mark.parametrize("make", [itertools.count, lambda: iter(range(9)), lambda: iter([1, 2, 3, 4]), numbers])
def test_iterators_are_taken_to_where_the_other_one_stood(make: Any):
    then, now = make(), make()
    next(then)
    next(then)

    put(then, now)

    assert next(now) == next(then)


def test_an_iterator_that_is_further_already_is_refused():
    now = iter(range(9))
    next(now)

    with pytest.raises(CaptureError, match=r"^it is an iterator, and cannot be taken to where it stood\.$"):
        put(iter(range(9)), now)


def test_what_others_share_and_a_place_that_cannot_be_changed_are_refused():
    with pytest.raises(CaptureError, match=r"^others share it, which were restored as they should be\.$"):
        put(random.Random(1), random.Random(2), in_place=False)
    snapshot, _ = packed({0: 1.0}, Resolver())
    with pytest.raises(CaptureError, match=r"^it stands in something that cannot be changed\.$"):
        put_saved(Target(2.0, None), snapshot, 0, Resolver(), in_place=False)
    with pytest.raises(CaptureError, match=r"^the straight run could not copy its value\.$"):
        put_saved(Target(2.0, None), snapshot, 7, Resolver(), in_place=False)


def test_tensors_keep_their_memory():
    torch = pytest.importorskip("torch")
    now = torch.nn.Parameter(torch.zeros(2))
    address = now.data_ptr()

    put(torch.nn.Parameter(torch.ones(2)), now)

    assert (now.data_ptr(), now.tolist()) == (address, [1.0, 1.0])
