"""`diff_snapshots`: every kind of difference is found where it stands, and equal snapshots have none."""

import struct
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.tree.diff import diff_snapshots, summary
from perdure.tree.leaves import Alias, Array, PRNGKey, owned
from perdure.tree.snapshot import Component, Snapshot


def snapshot_of(**trees: Any) -> Snapshot:
    return Snapshot({name: Component("test", tree) for name, tree in trees.items()}, 100, 10, 5)


def nan(payload: int) -> float:
    return struct.unpack(">d", struct.pack(">Q", 0x7FF8000000000000 | payload))[0]


def nan32(payload: int) -> np.ndarray:
    return np.array([0x7FC00000 | payload], np.uint32).view(np.float32)


BROAD = {
    "leaves": [None, True, 1, 2**70, -0.0, nan(5), 1 + 2j, "text", b"bytes", (), [], {}],
    "arrays": {
        "weak": Array(np.ones(2, np.float32), weak_type=True),
        "scalar": Array(np.asarray(np.int8(3)), scalar=True),
        "nan": Array(nan32(7)),
        "bfloat16": Array(np.ones((2, 1), ml_dtypes.bfloat16)),
        "fortran": Array(np.asfortranarray(np.arange(6).reshape(2, 3))),
        "empty": Array(np.zeros((0, 4))),
        1: Array(np.zeros(())),
    },
    "key": PRNGKey("threefry2x32", Array(np.array([1, 2], np.uint32))),
    "shared": [Alias(("c", "arrays", "weak")), Alias(("c", "leaves"))],
}


def test_equal_snapshots_have_no_difference():
    assert diff_snapshots(snapshot_of(c=BROAD, d=1), snapshot_of(c=owned(BROAD), d=1)) == []


A = Array


@pytest.mark.parametrize(
    ("first", "second", "texts"),
    [
        pytest.param(1, 2, ("1", "2"), id="an int"),
        pytest.param(2**70, 2**70 + 1, ("1180591620717411303424", "1180591620717411303425"), id="a large int"),
        pytest.param(1, 1.0, ("1", "1.0"), id="int and float"),
        pytest.param(1, True, ("1", "True"), id="int and bool"),
        pytest.param(0.0, -0.0, ("0.0", "-0.0"), id="-0.0"),
        pytest.param(0j, complex(0.0, -0.0), ("0j", "-0j"), id="-0.0 in a complex"),
        pytest.param(None, 0, ("None", "0"), id="None and 0"),
        pytest.param("a", b"a", ("'a'", "1 bytes"), id="str and bytes"),
        pytest.param("1", 1, ("'1'", "1"), id="str and int"),
        pytest.param([1], (1,), ("list of 1", "tuple of 1"), id="list and tuple"),
        pytest.param([], {}, ("list of 0", "dict of 0"), id="empty list and empty dict"),
        pytest.param([], None, ("list of 0", "None"), id="empty list and None"),
        pytest.param(A(np.zeros(2, "f4")), A(np.zeros(2, "f8")), ("float32 2", "float64 2"), id="dtype"),
        pytest.param(A(np.zeros(2, ">f4")), A(np.zeros(2, "<f4")), (">f4 2", "float32 2"), id="byte order"),
        pytest.param(A(np.zeros(6)), A(np.zeros((2, 3))), ("float64 6", "float64 2×3"), id="shape"),
        pytest.param(A(np.zeros((0, 2))), A(np.zeros((2, 0))), ("float64 0×2", "float64 2×0"), id="empty shape"),
        pytest.param(
            A(np.zeros(2), weak_type=True), A(np.zeros(2)), ("float64 2, weak type", "float64 2"), id="weak type"
        ),
        pytest.param(A(np.array(5)), 5, ("int64 scalar 5", "5"), id="0-d array and int"),
        pytest.param(
            A(np.zeros((2, 3))),
            A(np.zeros((2, 3), order="F")),
            ("float64 2×3", "float64 2×3, memory order (1, 0)"),
            id="memory order",
        ),
        pytest.param(
            A(np.array([0.0, 0.0, 1.0])),
            A(np.array([0.0, -0.0, 2.0])),
            ("float64 3 [1] = 0.0", "float64 3 [1] = -0.0"),
            id="the first element that differs",
        ),
        pytest.param(
            A(np.asfortranarray([[1, 2], [3, 4]])),
            A(np.asfortranarray([[1, 2], [9, 4]])),
            ("int64 2×2, memory order (1, 0) [2] = 3", "int64 2×2, memory order (1, 0) [2] = 9"),
            id="an element in F order",
        ),
        pytest.param(A(np.array([True])), A(np.array([False])), ("bool 1 True", "bool 1 False"), id="one element"),
        pytest.param(
            PRNGKey("rbg", A(np.zeros(4, "u4"))),
            PRNGKey("unsafe_rbg", A(np.zeros(4, "u4"))),
            ("rbg key [0, 0, 0, 0]", "unsafe_rbg key [0, 0, 0, 0]"),
            id="key implementation",
        ),
        pytest.param(
            PRNGKey("threefry2x32", A(np.array([0, 1], "u4"))),
            PRNGKey("threefry2x32", A(np.array([0, 2], "u4"))),
            ("threefry2x32 key [0, 1]", "threefry2x32 key [0, 2]"),
            id="key data",
        ),
        pytest.param(
            PRNGKey("threefry2x32", A(np.array([0, 1], "u4"))),
            A(np.array([0, 1], "u4")),
            ("threefry2x32 key [0, 1]", "uint32 2"),
            id="typed key and raw key",
        ),
        pytest.param("x" * 80, "y", ("'" + "x" * 56 + "…", "'y'"), id="a long text is shortened"),
    ],
)
def test_each_kind_of_difference_is_found_and_told(first: Any, second: Any, texts: tuple[str, str]):
    differences = diff_snapshots(snapshot_of(c={"leaf": first}), snapshot_of(c={"leaf": second}))

    assert [str(difference) for difference in differences] == [f"c/leaf: {texts[0]} | {texts[1]}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(nan(1), nan(2), id="NaN payload of a float"),
        pytest.param(complex(nan(1), 0), complex(nan(2), 0), id="NaN payload of a complex"),
        pytest.param(A(nan32(1)), A(nan32(2)), id="NaN payload in an array"),
        pytest.param(A(np.asarray(1.0)), A(np.asarray(1.0), scalar=True), id="0-d array and NumPy scalar"),
    ],
)
def test_differences_that_read_alike_are_found(first: Any, second: Any):
    differences = diff_snapshots(snapshot_of(c=first), snapshot_of(c=second))

    assert [difference.path for difference in differences] == ["c"]


def test_keys_that_only_one_side_has_are_told_with_what_stands_there():
    first = snapshot_of(c={"a": 1, 1: "one", "l": [1, 2]})
    second = snapshot_of(c={"a": 1, "1": "one", "l": [1, 2, 3]})

    assert [str(difference) for difference in diff_snapshots(first, second)] == [
        "c/1: 'one' | absent",
        "c/l/2: absent | 3",
        "c/\"1\": absent | 'one'",
    ]


def test_the_order_of_keys_is_no_difference():
    assert diff_snapshots(snapshot_of(c={"a": 1, "b": 2}), snapshot_of(c={"b": 2, "a": 1})) == []


def test_components_and_counters_are_compared():
    first = snapshot_of(a=1, b=2)
    second = replace(snapshot_of(b=2, c=3), env_steps=101, updates=11, boundary=6)

    assert [str(difference) for difference in diff_snapshots(first, second)] == [
        "env_steps: 100 | 101",
        "updates: 10 | 11",
        "boundary: 5 | 6",
        "a: a component | absent",
        "c: absent | a component",
    ]


def test_all_differences_are_listed_not_only_the_first():
    first, second = {"x": [1, {"y": 2}], "z": 3}, {"x": [9, {"y": 9}], "z": 9}

    paths = [difference.path for difference in diff_snapshots(snapshot_of(c=first), snapshot_of(c=second))]

    assert paths == ["c/x/0", "c/x/1/y", "c/z"]


def test_an_alias_equals_a_copy_of_what_it_stands_for():
    shared = snapshot_of(a={"x": [1, 2]}, b=Alias(("a", "x")))
    apart = snapshot_of(a={"x": [1, 2]}, b=[1, 2])

    assert diff_snapshots(shared, apart) == []
    assert diff_snapshots(apart, shared) == []


def test_an_alias_of_something_else_is_a_difference_where_the_alias_stands():
    first = snapshot_of(a={"x": [1, 2], "y": [1, 3]}, b=Alias(("a", "x")))
    second = snapshot_of(a={"x": [1, 2], "y": [1, 3]}, b=Alias(("a", "y")))

    assert [str(difference) for difference in diff_snapshots(first, second)] == ["b/1: 2 | 3"]


def test_a_shared_node_that_differs_is_told_once_where_it_first_stands():
    first = snapshot_of(a=[1], b=Alias(("a",)), c=Alias(("a",)))
    second = snapshot_of(a=[2], b=Alias(("a",)), c=Alias(("a",)))

    assert [difference.path for difference in diff_snapshots(first, second)] == ["a/0"]


def test_objects_that_contain_themselves_are_compared_to_the_end():
    first = snapshot_of(a={"me": Alias(("a",)), "x": 1})
    second = snapshot_of(a={"x": 2, "me": Alias(("a",))})

    assert [difference.path for difference in diff_snapshots(first, second)] == ["a/x"]


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Array(np.zeros((2, 3), np.int8)), "int8 2×3"),
        (Array(np.asarray(2.5)), "float64 scalar 2.5"),
        (Array(np.zeros(0)), "float64 0"),
        ({"a": 1, "b": 2}, "dict of 2"),
        ((1,), "tuple of 1"),
        (b"123", "3 bytes"),
        (None, "None"),
        ("text", "'text'"),
    ],
)
def test_summaries_are_short(tree: Any, text: str):
    assert summary(tree) == text
