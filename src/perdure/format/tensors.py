"""Tensor files: valid safetensors files, laid out by our own encoder.

Layout (https://github.com/huggingface/safetensors, "Format"): the header's length as 8 bytes little-endian,
the header as JSON padded with spaces to a multiple of 8, then the arrays back to back. Arrays are sorted by
falling alignment, then name, so that each starts aligned to its items.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perdure.format import dtypes
from perdure.tree.leaves import Array, memory_axes

ALIGNMENT = 8

METADATA = "__metadata__"
"""The one key of the header that names no tensor."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where everything in one tensor file stands, known before a byte is written."""

    header: bytes
    """Length, JSON and padding."""
    arrays: Mapping[str, Array]
    """By tensor name, in file order."""
    offsets: Mapping[str, int]
    """By tensor name: the first byte's offset from the start of the file."""
    size: int
    """Bytes of the whole file."""


def lay_out(arrays: Mapping[str, Array], metadata: Mapping[str, str] = MappingProxyType({})) -> Layout:
    """The layout of a file that holds `arrays`.

    Args:
        arrays: by tensor name.
        metadata: what the header says beside them, and beside the writer.

    Raises:
        UnsupportedLeafError: a dtype has no exact bytes.
    """
    ordered = dict(sorted(arrays.items(), key=lambda item: (-item[1].value.dtype.alignment, item[0])))
    entries: dict[str, object] = {METADATA: {"writer": "perdure", **metadata}}
    position = 0
    relative: dict[str, int] = {}
    for name, array in ordered.items():
        relative[name], end = position, position + array.value.nbytes
        code, shape = _stored_as(array.value)
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    offsets = {name: len(header) + at for name, at in relative.items()}
    return Layout(header, ordered, offsets, len(header) + position)


def _stored_as(value: np.ndarray) -> tuple[str, list[int]]:
    name = dtypes.name_of(value.dtype)
    shape = list(value.transpose(memory_axes(value)).shape)
    if name not in dtypes.SAFETENSORS_CODES:
        shape.append(value.dtype.itemsize)
    return dtypes.safetensors_code(name), shape


def contiguous_bytes(value: np.ndarray) -> memoryview:
    """The array's bytes in memory order, as a flat view (a copy only where memory has gaps)."""
    if value.nbytes == 0:
        return memoryview(bytearray())
    flat = np.ascontiguousarray(value.transpose(memory_axes(value)))
    return flat.reshape(-1).view(np.uint8).data


def pieces(value: np.ndarray, piece_bytes: int) -> Iterator[memoryview]:
    """The array's bytes in memory order, in pieces of about `piece_bytes`; memory with gaps is copied by the piece."""
    if value.nbytes == 0:
        return
    ordered = value.transpose(memory_axes(value))
    if ordered.flags.c_contiguous:
        flat = contiguous_bytes(value)
        yield from (flat[start : start + piece_bytes] for start in range(0, flat.nbytes, piece_bytes))
        return
    while ordered.ndim > 1 and len(ordered) == 1:
        ordered = ordered[0]
    rows = max(1, piece_bytes * len(ordered) // ordered.nbytes)
    for start in range(0, len(ordered), rows):
        yield contiguous_bytes(np.ascontiguousarray(ordered[start : start + rows]))


def empty_array(dtype: np.dtype, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Memory for an array, without gaps.

    Args:
        dtype: the array's dtype.
        shape: its shape, in the user's axis order.
        axes: its axes from the slowest to the fastest in memory.
    """
    stored = np.empty([shape[axis] for axis in axes], dtype)
    return (
        stored if axes == tuple(range(len(axes))) else stored.transpose([axes.index(axis) for axis in range(len(axes))])
    )
