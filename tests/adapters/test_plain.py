"""Plain leaves come back exactly; a target says what kind is expected, and None expects nothing in particular."""

import enum
import math
import struct
from typing import Any

import numpy as np
import pytest


class Mode(enum.Enum):
    TRAIN = 1
    EVAL = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enum.StrEnum):
    A = "a"
    B = "b"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mask(enum.IntFlag):
    A = 1
    B = 2


@pytest.mark.parametrize("value", [None, True, 0, -(2**90), 1.5, float("inf"), 2 - 1j, "tëxt\x00", b"\x00\xff", ""])
def test_a_leaf_comes_back_with_its_type(trip, value: Any):
    back = trip.restored(value, value)

    assert (type(back), back) == (type(value), value)


def test_minus_zero_and_nan_payloads_come_back(trip):
    payload = struct.unpack(">d", bytes.fromhex("7ff8000000000abc"))[0]

    back = trip.restored([-0.0, payload], [0.0, 0.0])

    assert math.copysign(1, back[0]) == -1
    assert struct.pack(">d", back[1]).hex() == "7ff8000000000abc"


@pytest.mark.parametrize(
    "saved", [True, 3, 0.5, "text", b"b", [1, {"a": 2}], (1, (2,)), {3: "x"}, np.arange(3), np.float32(1)]
)
def test_a_target_that_is_none_takes_any_plain_value_or_numpy_array(trip, saved: Any):
    back = trip.restored(saved, None)

    assert type(back) is type(saved)
    assert repr(back) == repr(saved)


@pytest.mark.parametrize("target", [1, 0.5, "text", b"b", True])
def test_a_value_that_has_become_none_comes_back_as_none(trip, target: Any):
    assert trip.restored(None, target) is None


@pytest.mark.parametrize(("saved", "target"), [(0.5, 0), (3, 0.0), (1 + 1j, 0), (np.float32(0.5), 0), (2**70, 0.0)])
def test_a_number_may_change_its_type_as_the_best_score_does(trip, saved: Any, target: Any):
    back = trip.restored(saved, target)

    assert (type(back), back) == (type(saved), saved)


@pytest.mark.parametrize(
    ("saved", "target", "texts"),
    [
        ("a", 1, ("'a'", "1")),
        (1, "a", ("1", "'a'")),
        (True, 1, ("True", "1")),
        (1, True, ("1", "True")),
        (b"a", "a", ("1 bytes", "'a'")),
        ([1], 1, ("list of 1", "1")),
        ({"a": 1}, "x", ("dict of 1", "'x'")),
        (np.zeros(2), 1.0, ("float64 2", "1.0")),
        (np.float32(1), True, ("float32 scalar 1.0", "True")),
    ],
)
def test_a_leaf_of_another_kind_is_a_finding(trip, saved: Any, target: Any, texts: tuple[str, str]):
    refusal = trip.refusal([saved, object_of(target)], [target, object_of(target)])

    assert [(finding.key, finding.saved, finding.found) for finding in refusal.findings] == [("c/0", *texts)]
    assert refusal.findings[0].advice == "Start this value with the kind that the run keeps in it."


def object_of(_value: Any) -> Any:
    """Something live beside the value, so that the list around both is not plain data of free shape."""
    return np.random.default_rng(0)


def test_a_live_object_where_a_number_is_expected_is_a_finding(trip):
    assert trip.findings(np.random.default_rng(0), 5) == [("c", "dict of 1", "5")]


# Enums.


@pytest.mark.parametrize(
    ("saved", "target"),
    [(Mode.EVAL, Mode.TRAIN), (Level.HIGH, Level.LOW), (Kind.B, Kind.A), (Access.WRITE, Access.READ)],
    ids=str,
)
def test_the_saved_member_of_an_enum_comes_back(trip, saved: Any, target: Any):
    """By name: its value may change from one version of a script to the next."""
    assert trip.restored([saved, object_of(saved)], [target, object_of(target)])[0] is saved
    assert trip.tree(saved) == saved.name


@pytest.mark.parametrize("saved", [Access.READ | Access.WRITE, Access(0), Mask.A | Mask.B, Mask(12)], ids=repr)
def test_a_combination_of_flags_comes_back(trip, saved: Any):
    """None of them is a member with a name; a state that can be saved must be one that can be restored."""
    target = type(saved)(1)

    back = trip.restored([saved, object_of(saved)], [target, object_of(target)])[0]

    assert (type(back), back) == (type(saved), saved)


@pytest.mark.parametrize(
    ("saved", "target", "texts"),
    [
        (Mode.EVAL, Level.LOW, ("'EVAL'", "Level with ['LOW', 'HIGH']")),
        (2, Level.LOW, ("2", "Level with ['LOW', 'HIGH']")),
        ("C", Kind.A, ("'C'", "Kind with ['A', 'B']")),
        (None, Mode.TRAIN, ("None", "Mode with ['TRAIN', 'EVAL']")),
        (Level.LOW, 2, ("'LOW'", "2")),
        (8, Access.READ, ("8", "Access with ['READ', 'WRITE']")),
        (1, Access.READ, ("1", "Access with ['READ', 'WRITE']")),
    ],
)
def test_a_member_that_the_enum_does_not_have_is_a_finding(trip, saved: Any, target: Any, texts: tuple[str, str]):
    assert trip.findings([saved, object_of(saved)], [target, object_of(target)]) == [("c/0", *texts)]
