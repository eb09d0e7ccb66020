"""NumPy arrays and scalars: every bit, the memory order, and memory of their own."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.errors import UnsupportedLeafError
from perdure.tree.leaves import memory_axes

X = np.arange(6.0).reshape(2, 3)


def varied(dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.array([[True, False, True]])
    return (np.arange(6 * dtype.itemsize, dtype=np.uint8) * 41 + 3).view(dtype).reshape(2, 3)


@pytest.mark.parametrize(
    "value",
    [
        *[
            pytest.param(varied(dtype), id=str(np.dtype(dtype)))
            for dtype in (
                *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8"),
                *("M8[ns]", "m8[s]", "S2"),
                *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
            )
        ],
        pytest.param(np.array([["a", "übung", ""]]), id="unicode"),
        pytest.param(np.asarray(2.5), id="0-d"),
        pytest.param(np.zeros((0, 3), np.int8), id="empty"),
        pytest.param(np.array([-0.0, np.nan, np.inf]), id="special"),
    ],
)
def test_an_array_comes_back_bit_by_bit(trip, value: np.ndarray):
    back = trip.restored(value, np.zeros_like(value))

    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()
    assert back.flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(np.asfortranarray(X), id="F"),
        pytest.param(X.T, id="transposed"),
        pytest.param(np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0), id="rotated"),
        pytest.param(X[:, ::2], id="gaps"),
        pytest.param(X[::-1].T, id="reversed and transposed"),
        pytest.param(np.broadcast_to(np.arange(3), (2, 3)), id="broadcast"),
    ],
)
def test_the_memory_order_comes_back_whatever_the_target_s_is(trip, value: np.ndarray):
    back = trip.restored(value, np.zeros(value.shape, value.dtype))

    assert back.tolist() == value.tolist()
    assert memory_axes(back) == memory_axes(value)


def test_sums_over_a_restored_array_are_bit_identical(trip):
    value = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32).T

    back = trip.restored(value, np.zeros_like(value))

    assert back.sum().tobytes() == value.sum().tobytes()
    assert back.sum(axis=0).tobytes() == value.sum(axis=0).tobytes()


def test_a_restored_array_shares_memory_with_nothing(trip):
    value, target = np.arange(3), np.zeros(3, np.int64)
    snapshot = trip.saved(value)

    back = trip.restored(value, target)

    assert back is not target
    for other in (value, target, snapshot.components["c"].tree.value):
        assert not np.shares_memory(back, other)
    assert target.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("saved", "target", "texts", "advice"),
    [
        (X.astype("f4"), X, ("float32 2×3", "float64 2×3"), "Build it with dtype float32, as the run did."),
        (X.astype(">f8"), X, (">f8 2×3", "float64 2×3"), "Build it with dtype >f8, as the run did."),
        (X, X.T.copy(), ("float64 2×3", "float64 3×2"), "Build it with the run's sizes."),
        (X, X[0], ("float64 2×3", "float64 3"), "Build it with the run's sizes."),
        (np.asarray(1.0), np.ones(1), ("float64 scalar 1.0", "float64 1"), "Build it with the run's sizes."),
        (np.ones(1), np.asarray(1.0), ("float64 1 1.0", "float64 scalar"), "Build it with the run's sizes."),
        (1.0, np.asarray(1.0), ("1.0", "array float64 scalar"), "Build it as the run did."),
        (np.float64(1), np.asarray(1.0), ("float64 scalar 1.0", "array float64 scalar"), "Build it as the run did."),
        ([1.0], np.ones(1), ("list of 1", "array float64 1"), "Build it as the run did."),
    ],
)
def test_another_dtype_or_shape_is_a_finding(trip, saved: Any, target: Any, texts: tuple[str, str], advice: str):
    refusal = trip.refusal({"obs": saved}, {"obs": target})

    assert [(f.key, f.saved, f.found, f.advice) for f in refusal.findings] == [("c/obs", *texts, advice)]


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.int8(-3),
        np.bool_(True),
        np.complex64(1 - 2j),
        np.str_("ü"),
        np.bytes_(b"a"),
        np.datetime64("2020"),
    ],
    ids=lambda scalar: type(scalar).__name__,
)
def test_a_scalar_stays_a_scalar(trip, scalar: Any):
    back = trip.restored([scalar, X], [type(scalar)(scalar), X])[0]

    assert type(back) is type(scalar)
    assert back == scalar


def test_a_scalar_of_an_extension_dtype_stays_one(trip):
    back = trip.restored((ml_dtypes.bfloat16(1.5), 0), (ml_dtypes.bfloat16(0), 0))

    assert (type(back[0]), back[0]) == (ml_dtypes.bfloat16, 1.5)


@pytest.mark.parametrize(("saved", "target"), [(3, np.int64(0)), (np.float32(1), np.float64(0)), (0.5, np.float32(0))])
def test_numbers_take_the_place_of_scalars_as_of_each_other(trip, saved: Any, target: Any):
    back = trip.restored((saved, X), (target, X))[0]

    assert (type(back), back) == (type(saved), saved)


def test_a_text_in_the_place_of_a_scalar_is_a_finding(trip):
    assert trip.findings(("a", X), (np.float32(0), X)) == [("c/0", "'a'", f"numpy scalar {np.float32(0)!r}")]


@pytest.mark.parametrize("value", [np.array([None, 1]), np.zeros(2, [("a", "f4")])], ids=["object", "structured"])
def test_arrays_without_exact_bytes_are_refused_with_their_path(trip, value: np.ndarray):
    with pytest.raises(UnsupportedLeafError) as caught:
        trip.component({"infos": [value]})

    assert str(caught.value) == f"c/infos/0: dtype {value.dtype} cannot be stored exactly; use plain numbers."


@pytest.mark.parametrize(
    "value",
    [np.array(["a"], np.dtypes.StringDType()), np.zeros(2, [("a", "f4")])[0], np.zeros(2, "V4")],
    ids=["T", "void", "V"],
)
def test_whatever_else_has_no_exact_bytes_is_refused_with_its_path(trip, value: Any):
    with pytest.raises(UnsupportedLeafError, match="c/infos/0"):
        trip.saved({"infos": [value]})
