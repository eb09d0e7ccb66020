"""The `.metadata` of `torch.distributed.checkpoint`: what its items are and where their bytes stand, checked.

A tensor of several processes is kept in chunks; together they must cover it exactly once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError
from perdure.interop.pickled_values import Name, OddKey, Record
from perdure.interop.restricted_pickle import read_pickle
from perdure.interop.torch_archives import TORCH
from perdure.interop.torch_tensors import MAX_AXES, MAX_ELEMENTS, lengths_in
from perdure.interop.unfolding import MAX_DEPTH

METADATA = ".metadata"
MODULE = "torch.distributed.checkpoint.metadata"

MAX_CHUNKS = 1 << 14
"""The most chunks of one tensor; each is compared with every other one."""


@dataclass(frozen=True)
class Stored:
    """Where something stands."""

    file: str
    """The name of a file in the directory."""
    offset: int
    """Its first byte."""
    length: int
    """How many bytes it has: a file of `torch.save` of its own."""


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor."""

    offsets: tuple[int, ...]
    """Its first element, along each axis of the whole."""
    sizes: tuple[int, ...]
    """Its length along each axis."""
    stored: Stored


@dataclass(frozen=True)
class Item:
    """A tensor, or a value that was saved alone."""

    path: tuple[str | int, ...]
    """Where it stood in the dict that was saved."""
    dtype: Name | None
    """Of a tensor, by PyTorch's name; None of a value."""
    shape: tuple[int, ...]
    """Of a tensor."""
    chunks: tuple[Chunk, ...]
    """Of a tensor."""
    stored: Stored | None
    """Of a value."""


def read_items(directory: Path) -> tuple[dict[str, Item], str]:
    """Every item by its name, and the version that wrote them.

    Raises:
        DamagedError: `.metadata` is missing, cut or contradicts itself; chunks leave holes, overlap or go beyond their
            tensor; a file is missing or too short.
    """
    file = directory / METADATA
    if not file.is_file():
        raise DamagedError(
            f"{file}: is missing. torch.distributed.checkpoint writes it last, so it was stopped in the middle of this "
            "save; take the one before it."
        )
    fields = _fields(read_pickle(file.read_bytes(), str(file), TORCH), "Metadata", file)
    entries, places = fields.get("state_dict_metadata"), fields.get("storage_data")
    paths = fields.get("planner_data")
    if not isinstance(entries, dict) or not isinstance(places, dict):
        raise _damaged(file, "it does not say what was saved, or where")
    stored = _stored(places, directory, file)
    items = {
        str(name): _item(str(name), entry, paths if isinstance(paths, dict) else {}, stored, file)
        for name, entry in entries.items()
    }
    version = fields.get("version")
    return items, version if isinstance(version, str) and version.isprintable() else "before 1.0.0"


def _item(
    name: str, entry: Any, paths: Mapping[Any, Any], stored: Mapping[tuple[str, Any], Stored], file: Path
) -> Item:
    path = paths.get(name, (name,))
    are_steps = isinstance(path, tuple) and all(type(step) in (str, int) for step in path)
    if not are_steps or not 0 < len(path) <= MAX_DEPTH:
        raise _damaged(file, f"{name!a}: no path in the dict that was saved")
    if isinstance(entry, Record) and entry.made_by == Name(MODULE, "BytesStorageMetadata"):
        return Item(path, None, (), (), _place(stored, name, None, file))
    fields = _fields(entry, "TensorStorageMetadata", file)
    properties, chunks = fields.get("properties"), fields.get("chunks")
    dtype = properties.state[0] if isinstance(properties, Record) and isinstance(properties.state, tuple) else None
    if not isinstance(dtype, Name) or not isinstance(chunks, list) or len(chunks) > MAX_CHUNKS:
        raise _damaged(file, f"{name!a}: no dtype, or no list of at most {MAX_CHUNKS:,} chunks")
    shape = lengths_in(fields.get("size"), f"{file}: {name}")
    if prod(max(size, 1) for size in shape) >= MAX_ELEMENTS or len(shape) > MAX_AXES:
        raise _damaged(file, f"{name!a}: the shape {shape}, which no memory holds")
    found = tuple(_chunk(name, each, stored, file) for each in chunks)
    _check_cover(name, shape, found, file)
    return Item(path, dtype, shape, found, None)


def _chunk(name: str, entry: Any, stored: Mapping[tuple[str, Any], Stored], file: Path) -> Chunk:
    fields = _fields(entry, "ChunkStorageMetadata", file)
    offsets = lengths_in(fields.get("offsets"), f"{file}: {name}")
    sizes = lengths_in(fields.get("sizes"), f"{file}: {name}")
    return Chunk(offsets, sizes, _place(stored, name, offsets, file))


def _check_cover(name: str, shape: tuple[int, ...], chunks: tuple[Chunk, ...], file: Path) -> None:
    """Every chunk is inside; no two overlap; so if they have as many elements as the whole, they leave no hole."""
    for chunk in chunks:
        is_of_rank = len(chunk.offsets) == len(chunk.sizes) == len(shape)
        if not is_of_rank or any(
            at + size > whole for at, size, whole in zip(chunk.offsets, chunk.sizes, shape, strict=True)
        ):
            raise _damaged(file, f"{name!a}: the chunk {chunk.sizes} at {chunk.offsets} is not inside of {shape}")
    full = [chunk for chunk in chunks if prod(chunk.sizes)]
    starts = np.array([chunk.offsets for chunk in full], np.int64).reshape(len(full), len(shape))
    stops = starts + np.array([chunk.sizes for chunk in full], np.int64).reshape(len(full), len(shape))
    for at, chunk in enumerate(full):
        meets = (starts[at + 1 :] < stops[at]) & (stops[at + 1 :] > starts[at])
        if meets.all(axis=1).any():
            raise _damaged(file, f"{name!a}: the chunk {chunk.sizes} at {chunk.offsets} overlaps another one")
    held = sum(prod(chunk.sizes) for chunk in full)
    if held != prod(shape):
        raise _damaged(file, f"{name!a}: its chunks hold {held:,} elements of {prod(shape):,}: they leave a hole")


def _stored(places: Mapping[Any, Any], directory: Path, file: Path) -> dict[tuple[str, Any], Stored]:
    found: dict[tuple[str, Any], Stored] = {}
    for key, entry in places.items():
        index = _fields(key.value if isinstance(key, OddKey) else None, "MetadataIndex", file)
        name, offset = index.get("fqn"), index.get("offset")
        if not isinstance(name, str):
            raise _damaged(file, "a place of something without a name")
        at = None if offset is None else lengths_in(offset, f"{file}: {name}")
        if (name, at) in found:
            raise _damaged(file, f"{name!a}: stands there twice")
        found[name, at] = _stored_at(name, entry, directory, file)
    return found


def _stored_at(name: str, entry: Any, directory: Path, file: Path) -> Stored:
    state = entry.state if isinstance(entry, Record) and isinstance(entry.state, dict) else {}
    path, offset, length = (state.get(part) for part in ("relative_path", "offset", "length"))
    if not isinstance(path, str) or Path(path).name != path or not path.isprintable():
        raise _damaged(file, f"{name!a}: {path!a} is no name of a file in the directory")
    if state.get("transform_descriptors"):
        raise _damaged(file, f"{name!a}: was compressed or changed by extensions while it was written; not read")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise _damaged(file, f"{name!a}: no place in {path}")
    whole = directory / path
    if not whole.is_file() or whole.stat().st_size < offset + length:
        raise _damaged(file, f"{name!a}: {path} is missing, or ends before byte {offset + length:,}")
    return Stored(path, offset, length)


def _place(stored: Mapping[tuple[str, Any], Stored], name: str, at: Any, file: Path) -> Stored:
    if (name, at) not in stored:
        raise _damaged(file, f"{name!a}: it does not say where {'it' if at is None else f'the chunk at {at}'} stands")
    return stored[name, at]


def _fields(record: Any, name: str, file: Path) -> dict[Any, Any]:
    if not isinstance(record, Record) or record.made_by != Name(MODULE, name) or not isinstance(record.state, dict):
        raise _damaged(file, f"no {name} where torch.distributed.checkpoint writes one")
    return record.state


def _damaged(file: Path, what: str) -> DamagedError:
    return DamagedError(f"{file}: {what}. Take an undamaged copy of the directory.")
