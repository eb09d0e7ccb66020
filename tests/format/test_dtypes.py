"""The dtype table: every dtype with exact bytes has one name, which gives it back; the others are refused."""

import ml_dtypes
import numpy as np
import pytest

from perdure.errors import DamagedError, UnsupportedLeafError
from perdure.format.dtypes import SAFETENSORS_CODES, dtype_of, name_of, safetensors_code

NUMPY = {
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
ALL_ML = {
    np.dtype(kind) for kind in vars(ml_dtypes).values() if isinstance(kind, type) and issubclass(kind, np.generic)
}
ML = {dtype for dtype in ALL_ML if dtype.name not in ("int1", "uint1", "complex32", "bcomplex32")}
"""Without those that came with ml_dtypes 0.6 and that no framework computes with yet."""
BIG_ENDIAN = {dtype.newbyteorder(">") for dtype in NUMPY if dtype.itemsize > 1}
OTHERS = {
    np.dtype(text)
    for text in (
        *("<U1", "<U7", ">U3", "S1", "S5", "<M8", "<M8[ns]", ">M8[s]", "<M8[D]", "<M8[25us]", "<m8[ms]", "<m8[Y]"),
    )
}


def in_order(dtypes: set[np.dtype]) -> list[np.dtype]:
    return sorted(dtypes, key=str)


def test_the_table_of_ml_dtypes_is_not_empty():
    assert {"bfloat16", "int4", "uint2", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"} <= {d.name for d in ML}


@pytest.mark.parametrize("dtype", in_order(NUMPY | ML | BIG_ENDIAN | OTHERS), ids=str)
def test_every_dtype_with_exact_bytes_comes_back_from_its_name(dtype: np.dtype):
    back = dtype_of(name_of(dtype))

    assert back == dtype
    assert back.byteorder == dtype.byteorder


def test_no_two_dtypes_share_a_name():
    dtypes = NUMPY | ML | BIG_ENDIAN | OTHERS

    assert len({name_of(dtype) for dtype in dtypes}) == len(dtypes)


@pytest.mark.parametrize("dtype", in_order(NUMPY | ML), ids=str)
def test_ordinary_dtypes_bear_their_own_names(dtype: np.dtype):
    assert name_of(dtype) == dtype.name


@pytest.mark.parametrize("dtype", in_order(BIG_ENDIAN), ids=str)
def test_another_byte_order_is_part_of_the_name(dtype: np.dtype):
    assert name_of(dtype) == dtype.str


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype(object),
        np.dtype([("a", "f4"), ("b", "i4")]),
        np.dtype([("a", object)]),
        np.dtype("V8"),
        np.dtypes.StringDType(),
        np.dtype("U"),
        np.dtype("S"),
    ],
    ids=str,
)
def test_dtypes_without_exact_bytes_of_their_own_are_refused(dtype: np.dtype):
    with pytest.raises(UnsupportedLeafError) as caught:
        name_of(dtype)

    assert str(caught.value) == f"dtype {dtype} cannot be stored exactly. Split it into arrays of plain numbers."


@pytest.mark.parametrize("dtype", in_order(ALL_ML - ML), ids=str)
def test_an_extension_dtype_outside_of_the_table_is_refused_never_stored_under_another_name(dtype: np.dtype):
    with pytest.raises(UnsupportedLeafError, match="cannot be stored exactly"):
        name_of(dtype)


def test_a_foreign_byte_order_of_an_extension_dtype_is_not_taken_for_the_native_one():
    """NumPy gives `>V2` the name `bfloat16`; calling it so on disk would swap its bytes silently."""
    swapped = np.dtype(ml_dtypes.bfloat16).newbyteorder(">")

    with pytest.raises(UnsupportedLeafError, match="cannot be stored exactly"):
        name_of(swapped)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "object",
            "O",
            "|O",
            "float",
            "int",
            "f4",
            "<f4",
            "=f4",
            "|i1",
            "float33",
            "<f3",
            "<i3",
            "<c9",
            "Float32",
        ),
        *("float32 ", "bool_", "<U0", "|S0", "<U", "<U999999999", "<M8[xx]", "<M8[]", "<M8[1ns]", ">U", ">i1", "<b1"),
        *("str", "datetime64[ns]", "V8", "|V8", "float32,float32", "(2,)f4", "int1", "__class__", "bfloat16\n"),
    ],
)
def test_any_other_name_is_refused(name: str):
    with pytest.raises(DamagedError) as caught:
        dtype_of(name)

    assert str(caught.value) == f"unknown dtype {name!r}"


def test_what_safetensors_lacks_is_stored_as_bytes():
    names = {name_of(dtype) for dtype in NUMPY | ML | BIG_ENDIAN | OTHERS}

    assert {name: safetensors_code(name) for name in names} == {
        name: SAFETENSORS_CODES.get(name, "U8") for name in names
    }
    assert (safetensors_code("complex128"), safetensors_code("int4"), safetensors_code(">f4")) == ("U8", "U8", "U8")
