"""Sets come back with what is in them, and in the order in which a program goes through them; else they are refused."""

import random
import subprocess
import sys
from typing import Any

import pytest

from perdure.errors import CaptureError

SETS: dict[str, Any] = {
    "numbers": {3, 1, 70, 64, -5},
    "floats": {0.5, 2.25, -1.0, 1e300},
    "places": {(1, 2), (0, 3), (7, 7)},
    "text": {"b", "a", "c"},
    "mixed": {None, "a", 1, b"x", (1, "a"), frozenset({2, 3})},
    "empty": set(),
    "frozen": frozenset({8, 0, 16}),
}


@pytest.mark.parametrize("kind", SETS)
def test_a_set_comes_back(trip, kind: str):
    source = SETS[kind]

    back = trip.restored({"held": [source]}, {"held": [type(source)()]})["held"][0]

    assert (type(back), back) == (type(source), source)
    if kind not in ("text", "mixed"):
        assert list(back) == list(source)


def worn(rng: random.Random) -> set[int]:
    items = set(range(0, 200, 8))
    for _ in range(rng.randrange(60)):
        items.symmetric_difference_update({rng.randrange(0, 400)})
    return items & {*range(0, 400, rng.choice([1, 5, 40]))}


def test_a_set_with_a_history_is_refused_or_comes_back_in_its_order(trip):
    rng, refusals = random.Random(1), []
    for _ in range(200):
        items = worn(rng)
        try:
            assert list(trip.restored([items], [set()])[0]) == list(items)
        except CaptureError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 200
    assert {text.split(",")[0] for text in refusals} == {
        "c/0: a set whose order depends on what was added to it and removed from it before"
    }
    assert all("dict.fromkeys(items)" in text for text in refusals)


@pytest.mark.full
def test_text_is_stored_in_one_order_whatever_the_process_hashes_to():
    code = (
        "from perdure.adapters.resolve import Resolver; from perdure.checkpoint.capture import *;"
        "print(capture({'c': [{'a', 'b', 'c', 'd'}]}, Resolver(), Counters()).snapshot.components['c'].tree)"
    )
    seen = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for _ in range(3)
    }
    assert seen == {"[['a', 'b', 'c', 'd']]\n"}


@pytest.mark.parametrize("item", [object(), float("nan"), len, (1, object())], ids=["object", "nan", "function", "in"])
def test_an_item_without_a_place_of_its_own_is_refused(trip, item: Any):
    with pytest.raises(CaptureError, match=r"^c/0: a set's item is a .*would go through them in another order\. Use a"):
        trip.tree([{item}])


def test_a_set_into_something_else_is_a_finding(trip):
    assert trip.findings([{1}, len], [[1], len]) == [("c/0", "a set", "a list")]
    assert trip.findings([[1], len], [{1}, len]) == [("c/0", "list of 1", "a set")]
    assert trip.findings([frozenset({1}), len], [{1}, len]) == [("c/0", "list of 1", "a set")]


def test_the_digest_sees_an_item_and_its_kind(trip):
    assert len({trip.digest([items]) for items in ({0, 2}, {0, 3}, {False, 2}, {-0.0, 2}, {0.0, 2})}) == 5
