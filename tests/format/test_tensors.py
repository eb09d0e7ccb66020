"""Tensor files: valid safetensors, aligned, exact for every dtype and memory order."""

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import UnsupportedLeafError
from perdure.format.dtypes import SAFETENSORS_CODES, dtype_of, name_of
from perdure.format.tensors import Layout, contiguous_bytes, empty_array, lay_out, pieces
from perdure.tree.leaves import Array, memory_axes


def file_of(layout: Layout) -> bytes:
    return layout.header + b"".join(bytes(contiguous_bytes(array.value)) for array in layout.arrays.values())


def layout_of(values: Mapping[str, np.ndarray]) -> Layout:
    return lay_out({name: Array(value) for name, value in values.items()})


def any_bits(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array of `dtype` with varied bytes (bool: zeros and ones)."""
    size = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        return (np.arange(size) % 2 == 0).reshape(shape)
    return (np.arange(size * dtype.itemsize, dtype=np.uint8) * 37 + 11).view(dtype).reshape(shape)


STOCK = sorted(SAFETENSORS_CODES)
EXTRA = (
    "complex128",
    "int4",
    "uint2",
    "float4_e2m1fn",
    "float8_e8m0fnu",
    ">f4",
    ">i2",
    "<M8[ns]",
    "<m8[s]",
    "<U3",
    "|S2",
)


def stock_read(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """What the stock reader finds in a file: name -> code, shape, bytes."""
    entries = safetensors.deserialize(data)
    return {name: (entry["dtype"], list(entry["shape"]), bytes(entry["data"])) for name, entry in entries}


def test_stock_safetensors_reads_every_dtype_that_it_has_a_code_for():
    values = {name: any_bits(dtype_of(name), (2, 3)) for name in STOCK}

    found = stock_read(file_of(layout_of(values)))

    assert found == {name: (SAFETENSORS_CODES[name], [2, 3], value.tobytes()) for name, value in values.items()}


def test_stock_safetensors_gives_numpy_arrays_of_equal_values():
    # Its NumPy face has no bfloat16 and no float8.
    values = {name: any_bits(dtype_of(name), (2, 3)) for name in STOCK if dtype_of(name).isbuiltin == 1}

    loaded = safetensors.numpy.load(file_of(layout_of(values)))

    assert loaded.keys() == values.keys()
    for name, value in values.items():
        assert (loaded[name].dtype, loaded[name].shape) == (value.dtype, value.shape)
        assert loaded[name].tobytes() == value.tobytes()


def test_stock_safetensors_opens_the_file_on_disk(tmp_path: Path):
    values = {"a/kernel": np.arange(6.0).reshape(2, 3), "a/bias": np.ones(3, np.float32), "step": np.asarray(7)}
    path = tmp_path / "networks.safetensors"
    path.write_bytes(file_of(layout_of(values)))

    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"writer": "perdure"}
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118 - no mapping
            name: value.tolist() for name, value in values.items()
        }


@pytest.mark.parametrize("name", EXTRA)
def test_a_dtype_that_safetensors_lacks_is_stored_as_its_bytes_along_a_last_axis(name: str):
    value = any_bits(dtype_of(name), (2, 2)) if "U" not in name else np.array([["ab", "ü"], ["", "xyz"]], name)

    loaded = safetensors.numpy.load(file_of(layout_of({"x": value})))["x"]

    assert (loaded.dtype, loaded.shape) == (np.uint8, (2, 2, value.dtype.itemsize))
    assert loaded.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(np.zeros((0, 3), np.float32), id="empty"),
        pytest.param(np.zeros((2, 0), ml_dtypes.bfloat16), id="empty bfloat16"),
        pytest.param(np.zeros((0,), np.complex128), id="empty complex128"),
        pytest.param(np.asarray(2.5), id="0-d"),
        pytest.param(np.asarray(1 + 2j), id="0-d complex128"),
        pytest.param(np.asarray(True), id="0-d bool"),
    ],
)
def test_empty_and_0d_arrays_keep_their_shapes(value: np.ndarray):
    code, shape, data = stock_read(file_of(layout_of({"x": value})))["x"]

    lacks = name_of(value.dtype) not in SAFETENSORS_CODES
    assert code == SAFETENSORS_CODES.get(name_of(value.dtype), "U8")
    assert shape == [*value.shape, *([value.dtype.itemsize] if lacks else [])]
    assert data == value.tobytes()


def test_the_file_holds_an_array_in_its_memory_order():
    value = np.asfortranarray(np.arange(6).reshape(2, 3))

    loaded = safetensors.numpy.load(file_of(layout_of({"x": value})))["x"]

    assert loaded.tolist() == value.T.tolist()


def test_a_file_without_arrays_is_valid():
    assert safetensors.numpy.load(file_of(layout_of({}))) == {}


def test_the_header_is_padded_and_the_sizes_are_known_before_a_byte_is_written():
    layout = layout_of({"b": np.zeros(3, np.int8), "a": np.zeros(2, np.float64), "c": np.zeros(1, np.int16)})

    length = int.from_bytes(layout.header[:8], "little")
    entries = json.loads(layout.header[8:])
    assert length == len(layout.header) - 8
    assert len(layout.header) % 8 == 0
    assert layout.size == len(file_of(layout)) == len(layout.header) + 16 + 2 + 3
    assert list(layout.arrays) == ["a", "c", "b"]
    assert entries["b"] == {"dtype": "I8", "shape": [3], "data_offsets": [18, 21]}
    assert layout.offsets == {name: len(layout.header) + at for name, at in {"a": 0, "c": 16, "b": 18}.items()}


ANY_DTYPES = st.sampled_from([np.dtype(dtype_of(name)) for name in (*STOCK, *EXTRA)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ANY_DTYPES, st.integers(0, 3)), max_size=5))
def test_every_array_starts_aligned_to_its_items(parts: list[tuple[np.dtype, int]]):
    layout = layout_of({str(at): np.zeros(size, dtype) for at, (dtype, size) in enumerate(parts)})

    wrong = {
        name: (str(array.value.dtype), layout.offsets[name])
        for name, array in layout.arrays.items()
        if layout.offsets[name] % min(array.value.dtype.alignment, 8)
    }
    assert wrong == {}


@settings(max_examples=60, deadline=None)
@given(
    dtype=ANY_DTYPES,
    shape=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    seed=st.integers(0, 1000),
)
def test_bytes_in_memory_order_give_the_array_back(dtype: np.dtype, shape: tuple[int, ...], seed: int):
    order = np.random.default_rng(seed).permutation(len(shape))
    plain = any_bits(dtype, shape) if dtype.kind != "U" else np.full(shape, "aü", dtype)
    value = plain.transpose(order)

    data = np.frombuffer(bytearray(contiguous_bytes(value)), np.uint8)
    back = empty_array(value.dtype, value.shape, memory_axes(value))
    contiguous_bytes(back)[:] = data.data

    assert (back.dtype, back.shape, memory_axes(back)) == (value.dtype, value.shape, memory_axes(value))
    assert back.tobytes() == value.tobytes()
    assert not np.shares_memory(back, data)
    assert back.flags.writeable


@pytest.mark.parametrize(
    "value",
    [np.arange(10)[::3], np.arange(12).reshape(3, 4)[::-1, ::2], np.broadcast_to(np.arange(3), (2, 3))],
    ids=["gaps", "reversed", "broadcast"],
)
def test_gaps_and_reversals_leave_no_trace(value: np.ndarray):
    data = np.frombuffer(contiguous_bytes(value), np.uint8)

    back = empty_array(value.dtype, value.shape, memory_axes(value))
    contiguous_bytes(back)[:] = data.data
    assert back.tolist() == value.tolist()


def test_contiguous_memory_is_not_copied():
    value = np.asfortranarray(np.zeros((2, 3)))

    assert np.shares_memory(np.frombuffer(contiguous_bytes(value), np.uint8), value)


@pytest.mark.parametrize(("size", "piece", "lengths"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3]), (0, 4, [])])
def test_pieces_cover_the_bytes_in_order(size: int, piece: int, lengths: list[int]):
    value = np.arange(size, dtype=np.uint8)

    parts = list(pieces(value, piece))

    assert [part.nbytes for part in parts] == lengths
    assert b"".join(parts) == value.tobytes()


@pytest.mark.parametrize("value", [np.array([None]), np.zeros(2, [("a", "f4")])], ids=["object", "structured"])
def test_arrays_without_exact_bytes_are_refused(value: np.ndarray):
    with pytest.raises(UnsupportedLeafError, match=r"cannot be stored exactly\. Split it into arrays of plain numbers"):
        layout_of({"x": value})
