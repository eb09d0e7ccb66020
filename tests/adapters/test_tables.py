"""`defaultdict` and `Counter` come back with their kind, their order and keys of many kinds, however they grew."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perdure.errors import CaptureError


def zeros() -> np.ndarray:
    return np.zeros(2)


def scaled(scale: float) -> Callable[[], float]:
    return lambda: scale


TABLES: dict[str, Callable[[], Any]] = {
    "of a kind": lambda: defaultdict(int, b=2, a=1),
    "of nothing": lambda: defaultdict(None, {1: "x"}),
    "by places": lambda: defaultdict(float, {(1, 2): 0.5, (0, 0): -0.0}),
    "by numbers of NumPy": lambda: defaultdict(int, {(np.int64(1), np.int64(2)): 3}),
    "by numbers": lambda: defaultdict(str, {0.5: "half", None: "none", True: "yes"}),
    "of lists": lambda: defaultdict(list, {"a": [1, 2], 3: []}),
    "of a function": lambda: defaultdict(zeros, {(0, 1): np.arange(2.0)}),
    "of tables": lambda: defaultdict(lambda: defaultdict(int), {"a": defaultdict(int, {(1, 1): 4})}),
    "counts": lambda: Counter("abba"),
    "counts by places": lambda: Counter({(1, 2): 3, (0, 1): -1}),
}


def as_seen(table: Any) -> Any:
    if not isinstance(table, dict):
        return repr(table)
    factory = getattr(getattr(table, "default_factory", None), "__name__", None)
    return type(table), factory, [(repr(key), as_seen(value)) for key, value in table.items()]


@pytest.mark.parametrize("emptied", [False, True], ids=["as full", "into an empty one"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_comes_back_in_its_order(trip, kind: str, emptied: bool):
    source, target = TABLES[kind](), TABLES[kind]()
    if emptied:
        target.clear()

    back = trip.restored({"table": source}, {"table": target})["table"]

    assert as_seen(back) == as_seen(source)


def test_what_it_makes_for_a_missing_key_is_the_same_afterwards(trip):
    back = trip.restored(defaultdict(zeros, a=np.ones(2)), defaultdict(zeros))

    assert back["new"].tolist() == [0, 0]
    assert trip.restored(Counter("a"), Counter())["new"] == 0


def test_the_digest_sees_the_kind_and_each_value(trip):
    tables = (defaultdict(int, a=1), defaultdict(float, a=1), defaultdict(int, a=2), Counter(a=1), {"a": 1})

    assert len({trip.digest([table]) for table in tables}) == 5


def test_a_table_shared_by_two_places_is_shared_again(trip):
    shared = defaultdict(int, a=1)

    back = trip.restored([shared, shared], [defaultdict(int), defaultdict(int)])

    assert back[0] is back[1]


@pytest.mark.parametrize(
    ("saved", "target", "finding"),
    [
        (defaultdict(int), defaultdict(float), ("c/t", "defaultdict of int", "defaultdict of float")),
        (defaultdict(scaled(1.0)), defaultdict(scaled(2.0)), ("c/t/factory/scale", "1.0", "2.0")),
        (Counter(), {}, ("c/t", "a counter", "a dict")),
        ({}, Counter(), ("c/t", "dict of 0", "a Counter")),
        ({1}, [1], ("c/t", "a set", "a list")),
    ],
    ids=["kind", "what a function binds", "dict", "counter", "list"],
)
def test_another_kind_is_a_finding(trip, saved: Any, target: Any, finding: tuple[str, str, str]):
    assert finding in trip.findings({"t": saved, "n": np.ones(1)}, {"t": target, "n": np.ones(1)})


def test_what_counts_for_a_missing_key_is_refused(trip):
    with pytest.raises(CaptureError, match=r"^c: a defaultdict calls .* whose state a checkpoint would miss\. Give it"):
        trip.tree(defaultdict(itertools.count().__next__))


def test_an_object_as_a_key_is_refused(trip):
    with pytest.raises(
        CaptureError, match=r"^c: a Counter's key is a object, which a set or dict places by its address"
    ):
        trip.tree(Counter([object()]))
