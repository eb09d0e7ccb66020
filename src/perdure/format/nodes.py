"""Trees as JSON nodes: structure and plain leaves in the manifest, arrays by place and digest."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from perdure.errors import CaptureError, DamagedError
from perdure.format import dtypes, numbers
from perdure.format.canonical import Json
from perdure.format.digests import DIGEST_PATTERN
from perdure.format.known import Memory
from perdure.format.row_nodes import AllocateRows, Segment, decode_rows, encode_rows
from perdure.format.tensors import METADATA
from perdure.tree.leaves import PLAIN_TYPES, Alias, Array, PRNGKey, Tree, children, memory_axes
from perdure.tree.paths import Path, Step, format_path
from perdure.tree.rows import Rows

MAX_DEPTH = 64
"""Containers inside one another; Python's JSON reader and our recursion stay far from their limits."""

MAX_AXES = 64
"""NumPy's own limit."""

MAX_NUMBER = 1 << 62
"""Shapes, offsets and lengths stay below, so that no product of them overflows in NumPy."""


@dataclass(frozen=True)
class Place:
    """Where an array's bytes stand, and what they must be."""

    file: str
    """File name inside the checkpoint."""
    offset: int
    """First byte, from the start of the file."""
    length: int
    """Bytes."""
    digest: str
    """Digest of these bytes."""


def large_leaves(tree: Tree, path: Path) -> list[tuple[Path, Tree]]:
    """Every leaf that is not plain, in order, with its path."""
    found: list[tuple[Path, Tree]] = []
    _collect(tree, path, found)
    return found


def arrays_among(leaves: Iterable[tuple[Path, Tree]]) -> dict[Path, Array]:
    """The arrays among `large_leaves`, key data included. Aliases hold none."""
    arrays: dict[Path, Array] = {}
    for path, leaf in leaves:
        if isinstance(leaf, Array):
            arrays[path] = leaf
        elif isinstance(leaf, PRNGKey):
            arrays[path] = leaf.data
    return arrays


def _collect(tree: Tree, path: Path, found: list[tuple[Path, Tree]]) -> None:
    if not isinstance(tree, dict | list | tuple):
        found.append((path, tree))
    for step, child in children(tree):
        if type(child) not in PLAIN_TYPES:
            _collect(child, (*path, step), found)


def tensor_name(path: Path) -> str:
    """The array's name in its component's tensor file."""
    name = format_path(path[1:]) if len(path) > 1 else format_path(path)
    return json.dumps(name) if name == METADATA else name


NO_SEGMENTS: Mapping[Path, tuple[Segment, ...]] = MappingProxyType({})


def encode_node(
    tree: Tree,
    path: Path,
    places: Mapping[Path, Place],
    segments: Mapping[Path, tuple[Segment, ...]] = NO_SEGMENTS,
    memory: Memory | None = None,
) -> Json:
    """The node for `tree`.

    Args:
        tree: a component's tree or a part of it.
        path: where it stands in the snapshot.
        places: for every array's path, where its bytes were written.
        segments: for every rows' path, the files that hold them.
        memory: the nodes of plain subtrees that are known already.

    Raises:
        CaptureError: an adapter returned something that is no tree.
    """
    return _Nodes(places, segments, memory or Memory()).node(tree, path)


@dataclass(frozen=True)
class _Nodes:
    """Makes nodes of one component's tree; the fields are the arguments of `encode_node`."""

    places: Mapping[Path, Place]
    segments: Mapping[Path, tuple[Segment, ...]]
    memory: Memory

    def node(self, tree: Tree, path: Path) -> Json:
        if type(tree) in PLAIN_TYPES:
            return numbers.encode_plain(tree)
        if isinstance(tree, dict | list | tuple):
            return self.memory.of(tree, len(path), lambda: self._container(tree, path))
        return self._leaf(tree, path)

    def _container(self, tree: dict[Step, Tree] | list[Tree] | tuple[Tree, ...], path: Path) -> Json:
        if len(path) >= MAX_DEPTH and len(tree):
            raise CaptureError(f"{format_path(path[:5])}/…: more than {MAX_DEPTH} containers inside one another.")
        if isinstance(tree, dict):
            pairs = [[_encode_key(key, path), self.node(child, (*path, key))] for key, child in tree.items()]
            return {"dict": pairs}
        return {type(tree).__name__: [self.node(child, (*path, at)) for at, child in enumerate(tree)]}

    def _leaf(self, tree: Tree, path: Path) -> Json:
        match tree:
            case Array():
                return {"array": _encode_array(tree, self.places[path])}
            case PRNGKey():
                key = {"implementation": tree.implementation, "data": _encode_array(tree.data, self.places[path])}
                return {"key": key}
            case Rows():
                return {"rows": encode_rows(tree, self.segments[path])}
            case Alias():
                return {"alias": [numbers.encode_plain(step) for step in tree.path]}
        message = f"{format_path(path)}: a {type(tree).__name__} is no leaf; the adapter must return plain values."
        raise CaptureError(message)


def _encode_key(key: object, path: Path) -> Json:
    if type(key) not in (str, int):
        raise CaptureError(f"{format_path(path)}: dict key {key!r} is neither a str nor an int.")
    return numbers.encode_plain(key)


def _encode_array(array: Array, place: Place) -> Json:
    node: dict[str, Json] = {
        "dtype": dtypes.name_of(array.value.dtype),
        "shape": list(array.value.shape),
        "file": place.file,
        "offset": place.offset,
        "length": place.length,
        "digest": place.digest,
    }
    axes = memory_axes(array.value)
    if axes != tuple(range(array.value.ndim)):
        node["axes"] = list(axes)
    if array.weak_type:
        node["weak_type"] = True
    if array.scalar:
        node["scalar"] = True
    return node


@dataclass(frozen=True)
class StoredArray:
    """An array's entry in the manifest."""

    place: Place
    """Where its bytes stand."""
    dtype: np.dtype
    """Its dtype."""
    shape: tuple[int, ...]
    """Its shape, in the user's axis order."""
    axes: tuple[int, ...]
    """Its axes from the slowest to the fastest in memory."""


ReadArray = Callable[[Path, StoredArray], np.ndarray]
"""Gets the array that stands at a path of the snapshot."""


def decode_node(node: Json, path: Path, read_array: ReadArray, read_rows: AllocateRows | None = None) -> Tree:
    """The tree that `node` stands for; the inverse of `encode_node`.

    Raises:
        DamagedError: the node breaks the grammar of `docs/format.md`.
    """
    if len(path) > MAX_DEPTH:
        raise DamagedError(f"{format_path(path[:5])}/…: more than {MAX_DEPTH} containers inside one another")
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise DamagedError(f"{format_path(path)}: a list where a node belongs")
        return node
    match node:
        case {"dict": list(pairs)} if len(node) == 1:
            return _decode_dict(pairs, path, read_array, read_rows)
        case {"list": list(nodes)} if len(node) == 1:
            return [decode_node(child, (*path, at), read_array, read_rows) for at, child in enumerate(nodes)]
        case {"tuple": list(nodes)} if len(node) == 1:
            return tuple(decode_node(child, (*path, at), read_array, read_rows) for at, child in enumerate(nodes))
    return _decode_leaf(node, path, read_array, read_rows)


def _decode_leaf(node: dict[str, Json], path: Path, read_array: ReadArray, read_rows: AllocateRows | None) -> Tree:
    match node:
        case {"array": dict(entry)} if len(node) == 1:
            return _decode_array(entry, path, read_array)
        case {"key": {"implementation": str(name), "data": dict(entry), **rest}} if len(node) == 1 and not rest:
            return PRNGKey(name, _decode_array(entry, path, read_array))
        case {"rows": dict(entry)} if len(node) == 1 and read_rows is not None:
            return read_rows(path, decode_rows(entry, path))
        case {"alias": list(steps)} if len(node) == 1 and steps:
            return Alias(tuple(_decode_step(step, path) for step in steps))
    try:
        return numbers.decode_plain(node)
    except DamagedError as error:
        raise DamagedError(f"{format_path(path)}: {error}") from error


def _decode_dict(
    pairs: list[Json], path: Path, read_array: ReadArray, read_rows: AllocateRows | None
) -> dict[str | int, Tree]:
    tree: dict[str | int, Tree] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise DamagedError(f"{format_path(path)}: a dict entry that is no pair")
        step = _decode_step(pair[0], path)
        if step in tree:
            raise DamagedError(f"{format_path((*path, step))}: the key appears twice")
        tree[step] = decode_node(pair[1], (*path, step), read_array, read_rows)
    return tree


def _decode_step(node: Json, path: Path) -> str | int:
    try:
        step = numbers.decode_plain(node)
    except DamagedError as error:
        raise DamagedError(f"{format_path(path)}: {error}") from error
    if type(step) not in (str, int):
        raise DamagedError(f"{format_path(path)}: {str(step)[:40]!r} is neither a str nor an int")
    return step


def encode_made(made: Mapping[Path, str]) -> Json:
    """`Component.made` as JSON."""
    return [[[numbers.encode_plain(step) for step in path], adapter] for path, adapter in made.items()]


def decode_made(entries: Json, path: Path) -> dict[Path, str]:
    """The inverse of `encode_made`.

    Raises:
        DamagedError: no list of pairs of a path and a name.
    """
    made: dict[Path, str] = {}
    for entry in entries:
        match entry:
            case [list(steps), str(adapter)]:
                made[tuple(_decode_step(step, path) for step in steps)] = adapter
            case _:
                raise DamagedError(f"{format_path(path)}: made: no pair of a path and an adapter's id")
    return made


_ARRAY_FIELDS = {"dtype", "shape", "file", "offset", "length", "digest"}
_ARRAY_OPTIONS = {"axes", "weak_type", "scalar"}


def _decode_array(entry: dict[str, Json], path: Path, read_array: ReadArray) -> Array:
    value = read_array(path, _checked_array(entry, path))
    return Array(value, weak_type="weak_type" in entry, scalar="scalar" in entry)


def _checked_array(entry: dict[str, Json], path: Path) -> StoredArray:
    where = format_path(path)
    if not _ARRAY_FIELDS <= entry.keys() <= _ARRAY_FIELDS | _ARRAY_OPTIONS:
        raise DamagedError(f"{where}: an array entry with the wrong fields {sorted(entry)}")
    if any(entry.get(flag, True) is not True for flag in ("weak_type", "scalar")):
        raise DamagedError(f"{where}: weak_type and scalar are true or absent")
    shape, file = entry["shape"], entry["file"]
    numbers_ = [entry["offset"], entry["length"], *(shape if isinstance(shape, list) else [-1])]
    if any(type(number) is not int or not 0 <= number < MAX_NUMBER for number in numbers_) or len(shape) > MAX_AXES:
        raise DamagedError(f"{where}: shape, offset or length is no natural number")
    if not isinstance(file, str) or not _is_digest(entry["digest"]) or not isinstance(entry["dtype"], str):
        raise DamagedError(f"{where}: file, dtype or digest is malformed")
    try:
        dtype = dtypes.dtype_of(entry["dtype"])
    except DamagedError as error:
        raise DamagedError(f"{where}: {error}") from error
    if prod(shape) * dtype.itemsize != entry["length"] or prod(filter(None, shape)) * dtype.itemsize > MAX_NUMBER:
        raise DamagedError(f"{where}: {dtype} {shape} does not fill {entry['length']} bytes")
    place = Place(file, entry["offset"], entry["length"], entry["digest"])
    return StoredArray(place, dtype, tuple(shape), _checked_axes(entry, len(shape), where))


def _checked_axes(entry: dict[str, Json], number: int, where: str) -> tuple[int, ...]:
    """The axes of an array entry; the usual order goes without saying, and must."""
    usual = tuple(range(number))
    if "axes" not in entry:
        return usual
    axes = entry["axes"]
    is_order = isinstance(axes, list) and all(type(axis) is int for axis in axes) and sorted(axes) == list(usual)
    if not is_order or tuple(axes) == usual:
        raise DamagedError(f"{where}: axes {str(axes)[:80]} are no order of {number} axes that needs saying")
    return tuple(axes)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST_PATTERN.fullmatch(value) is not None
