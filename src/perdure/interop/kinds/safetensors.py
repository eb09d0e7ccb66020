"""safetensors files (https://github.com/huggingface/safetensors, "Format"), read strictly and written plainly.

A length of 8 bytes, a JSON header of names, dtypes, shapes and offsets, and the arrays back to back, without holes.
"""

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError
from perdure.format.dtypes import SAFETENSORS_CODES, dtype_of
from perdure.format.tensors import METADATA, contiguous_bytes, lay_out
from perdure.interop.carried import ORDER, Carried, Contents, Leaf, Prepared, described, described_array, refuse
from perdure.interop.losses import Losses
from perdure.interop.names import flat, note_nesting
from perdure.store.streamed_files import create_streamed
from perdure.tree.leaves import Array, Tree, memory_axes

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

PLAIN = "perdure.plain"
"""The entry of the metadata that holds plain values, as JSON by name."""

_DTYPES = {code: name for name, code in SAFETENSORS_CODES.items()}
_AS_JSON = (type(None), bool, int, float, str)
_EXACT_INTEGER_BITS = 4096
_MAX_ELEMENTS = 1 << 58
"""NumPy counts bytes in 63 bits, even of arrays without any."""


@dataclass(frozen=True)
class _Tensor:
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """A safetensors file."""

    name = "safetensors"
    title = "a safetensors file"

    def recognises(self, path: Path) -> bool:
        """Its first bytes are a length, and the `{` of a header that is within the file or nearly so."""
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(9)
        return len(head) == 9 and head[8:] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES

    def contents(self, path: Path) -> Contents:
        """What the header says."""
        tensors, metadata, _ = _header(path)
        found = [Leaf(each.name, described_array(each.dtype, each.shape), each.stop - each.start) for each in tensors]
        plain, notes = _plain_of(metadata, {each.name for each in tensors})
        found += [Leaf(name, described(value)) for name, value in plain.items()]
        return Contents("safetensors", found, {key: text for key, text in metadata.items() if key != PLAIN}, notes)

    def read(self, path: Path) -> Carried:
        """A flat tree: arrays by name, and plain values that perdure put into the metadata."""
        tensors, metadata, data_start = _header(path)
        data = np.fromfile(
            path, np.uint8, offset=data_start
        )  # no map: whoever trains may write the file anew meanwhile
        if len(data) != max((each.stop for each in tensors), default=0):
            raise _damaged(path, "it was written anew while it was read")
        tree: dict[Any, Tree] = {each.name: _array(data, each) for each in tensors}
        plain, notes = _plain_of(metadata, tree.keys())
        losses = Losses()
        for note in notes:
            losses.add(PLAIN, note)
        rest = {key: text for key, text in metadata.items() if key != PLAIN}
        return Carried(tree | plain, rest, losses)

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """Arrays by their dotted names; plain values go into the metadata, as JSON.

        Raises:
            UsageError: a dtype has no code in the format, or a value has no JSON.
        """
        del widen  # what the format lacks (complex128, int4, text) has no wider form in it
        named = flat(carried.tree)
        refuse(self.title, _problems(named))
        arrays = {name: np.asarray(leaf) for name, leaf in named.items() if isinstance(leaf, np.ndarray | np.generic)}
        losses = _losses(named)
        note_nesting(carried.tree, losses)
        metadata = _metadata(carried.metadata, named, arrays, losses)
        return Prepared(lambda target: _write(target, arrays, metadata), losses.lines())


def _header(path: Path) -> tuple[list[_Tensor], dict[str, str], int]:
    """The tensors in the order of their bytes, the metadata, and where the bytes begin."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise _damaged(path, f"a header of {length:,} bytes, but {max(size - 8, 0):,} bytes follow its length")
        text = file.read(length)
    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=_without_twins)
        _check_text(document)
        metadata = _checked_metadata(document.pop(METADATA, {}))
        tensors = sorted((_tensor(name, entry) for name, entry in document.items()), key=lambda each: each.stop)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its header is not one of safetensors: {type(error).__name__} {error}") from error
    _check_places(path, tensors, size - 8 - length)
    return sorted(tensors, key=lambda each: (each.start, each.stop)), metadata, 8 + length


def _check_text(document: Any) -> None:
    """JSON can spell halves of surrogate pairs, which are no text: the format's own reader refuses them, too."""
    json.dumps(document, ensure_ascii=False).encode("utf-8")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _checked_metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise TypeError(f"{METADATA} is no mapping of texts")
    return metadata


def _tensor(name: str, entry: dict[str, Any]) -> _Tensor:
    if entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise KeyError(f"{name!a} has {sorted(entry)}")
    start, stop = entry["data_offsets"]
    numbers = [*entry["shape"], start, stop]
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers) or len(entry["shape"]) > 64:
        raise ValueError(f"{name!a} has the shape {entry['shape']} and the offsets {entry['data_offsets']}")
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name!a} has the dtype {entry['dtype']!a}, which perdure does not know")
    tensor = _Tensor(name, dtype_of(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), start, stop)
    if prod(tensor.shape) * tensor.dtype.itemsize != stop - start:
        raise ValueError(f"{name!a} is {described_array(tensor.dtype, tensor.shape)} in {stop - start:,} bytes")
    if prod(max(length, 1) for length in entry["shape"]) >= _MAX_ELEMENTS:
        raise ValueError(f"{name!a} has the shape {entry['shape']}, which no memory holds")
    return tensor


def _check_places(path: Path, tensors: list[_Tensor], data_bytes: int) -> None:
    """One after another from the first byte to the last: neither holes nor overlaps."""
    end = 0
    for tensor in sorted(tensors, key=lambda each: (each.start, each.stop)):
        if tensor.start != end:
            word = "overlaps what stands before it" if tensor.start < end else "leaves a hole before it"
            raise _damaged(path, f"{tensor.name!a} begins at byte {tensor.start:,} of the data, not {end:,}: it {word}")
        end = tensor.stop
    if end != data_bytes:
        raise _damaged(path, f"its tensors end at byte {end:,} of the data, the file at byte {data_bytes:,}")


def _array(data: np.ndarray, tensor: _Tensor) -> np.ndarray:
    return data[tensor.start : tensor.stop].view(tensor.dtype).reshape(tensor.shape)


def _plain_of(metadata: Mapping[str, str], taken: Set[str]) -> tuple[dict[str, Tree], list[str]]:
    """The plain values in the metadata; what looks like them, but is none, or has an array's name, is noted."""
    if PLAIN not in metadata:
        return {}, []
    try:
        plain = json.loads(metadata[PLAIN])
    except (ValueError, RecursionError):
        plain = None
    if isinstance(plain, dict) and taken.isdisjoint(plain) and all(map(_is_plain, plain.values())):
        return plain, []
    return {}, ["no plain values as perdure writes them; left out."]


def _is_plain(value: Any) -> bool:
    """What perdure puts there: leaves, of which containers are empty."""
    return type(value) in _AS_JSON or value in ({}, [])


def _problems(named: Mapping[str, Tree]) -> Iterator[str]:
    for name, leaf in named.items():
        if isinstance(leaf, np.ndarray | np.generic):
            if leaf.dtype.name not in SAFETENSORS_CODES or not leaf.dtype.isnative:
                yield f"{name}: {described(leaf)}: the format has no code for this dtype."
            if name == METADATA:
                yield f"{name}: the format keeps this name for its metadata."
        elif leaf not in ({}, [], ()) and type(leaf) not in _AS_JSON:
            yield f"{name}: a {type(leaf).__name__}, which neither the format nor JSON has."
        elif type(leaf) is int and leaf.bit_length() > _EXACT_INTEGER_BITS:
            yield f"{name}: an integer of {leaf.bit_length():,} bits."


def _losses(named: Mapping[str, Tree]) -> Losses:
    losses = Losses()
    for name, leaf in named.items():
        if isinstance(leaf, np.generic):
            losses.add(name, "a scalar of NumPy became an array without axes.")
        elif isinstance(leaf, np.ndarray) and memory_axes(leaf) != tuple(range(leaf.ndim)):
            losses.add(name, ORDER)
        elif type(leaf) is tuple:
            losses.add(name, "an empty tuple became an empty list.")
    return losses


def _metadata(
    told: Mapping[str, Any], named: Mapping[str, Tree], arrays: Mapping[str, np.ndarray], losses: Losses
) -> dict[str, str]:
    """What the source says beside its leaves, as text, and the plain values."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()}
    plain = {name: leaf for name, leaf in named.items() if name not in arrays}
    for name in plain:
        losses.add(name, f"a plain value, kept in the file's metadata under {PLAIN}.")
    return texts | ({PLAIN: json.dumps(plain)} if plain else {})


def _write(target: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    layout = lay_out({name: Array(np.asarray(value, order="C")) for name, value in arrays.items()}, metadata)

    def pieces() -> Iterator[bytes | memoryview]:
        yield layout.header
        yield from (contiguous_bytes(array.value) for array in layout.arrays.values())

    create_streamed(target, pieces())


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(f"{path}: {what}. Take an undamaged copy of the file.")


KIND = SafetensorsFile()
