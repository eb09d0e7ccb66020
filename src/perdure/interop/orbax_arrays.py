"""Arrays that Orbax wrote, as NumPy arrays: its `_METADATA` names them, and TensorStore reads them.

Orbax itself is not asked: it reads all arrays at once and allocates whatever they declare. Here each is opened alone,
and compared with what `_METADATA` and the files can hold before its memory is allocated.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError, UsageError
from perdure.interop.carried import Leaf, described, described_array
from perdure.interop.losses import Losses
from perdure.interop.orbax_tree import (
    ARRAYS,
    EMPTY,
    METADATA,
    SCALAR,
    STRING,
    OrbaxLeaf,
    OrbaxTree,
    assembled,
    not_as_written,
    read_json,
    read_metadata,
)
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

UNQUESTIONED_BYTES = 1 << 30
"""What the arrays of a directory may take, whatever its files hold."""

MAX_EXPANSION = 1000
"""Beyond that, how many times larger than the files they may be: they are compressed."""

STRINGS = "_strings.json"

_PLAIN = ("bool", "int64", "float64")
"""Dtypes in which Orbax stores numbers of Python."""

_FAILURES = (ValueError, OSError, RuntimeError, NotImplementedError)
"""What TensorStore's statuses become."""


def read_orbax(directory: Path, losses: Losses | None = None) -> Tree:
    """The tree of one item, as Orbax's StandardCheckpointer and PyTreeCheckpointer write it.

    Args:
        directory: the directory that holds `_METADATA`.
        losses: where it is noted what comes in another form.

    Returns:
        Nested dicts and lists of `np.ndarray` with the dtypes and shapes that were saved, whatever devices held them;
        of scalars and texts as Python's own; of None and empty containers. PRNG keys come as their key data.

    Raises:
        UsageError: TensorStore is not installed.
        DamagedError: the directory or a part of it is missing, contradicts itself or cannot be read. There is no digest
            of an array in it: a flipped bit in one may pass unnoticed.
    """
    tree = read_metadata(directory)
    values = _Arrays(directory, tree).all()
    for path, implementation in _keys(directory, tree).items():
        (losses or Losses()).add(path, f"a {implementation} key became its key data.")
    return assembled([leaf.path for leaf in tree.leaves], values)


def orbax_leaves(directory: Path) -> tuple[list[Leaf], list[str]]:
    """Every leaf by its name, without reading arrays, and what could not be told.

    Raises:
        DamagedError: as of `read_orbax`.
    """
    tree = read_metadata(directory)
    keys = _keys(directory, tree)
    try:
        opened = _Arrays(directory, tree).opened()
    except UsageError as error:
        return [Leaf(leaf.name, _told_of(leaf)) for leaf in tree.leaves], [f"dtypes are not told: {error}"]
    strings = _strings(directory, tree)
    found = []
    for leaf, array in zip(tree.leaves, opened, strict=True):
        if array is None:
            value = strings[leaf.name] if leaf.kind == STRING else EMPTY[leaf.kind]
            found.append(Leaf(leaf.name, described(value)))
            continue
        dtype, shape = array.dtype.numpy_dtype, tuple(array.shape)
        what = described_array(dtype, shape) + _more_of(leaf, dtype, keys.get(leaf.path))
        found.append(Leaf(leaf.name, what, prod(shape) * dtype.itemsize))
    return found, []


def _more_of(leaf: OrbaxLeaf, dtype: np.dtype, implementation: str | None) -> str:
    if implementation is not None:
        return f", a {implementation} key"
    return ", a plain value" if leaf.kind == SCALAR and dtype.name in _PLAIN else ""


def _told_of(leaf: OrbaxLeaf) -> str:
    if leaf.kind in EMPTY:
        return described(EMPTY[leaf.kind])
    return leaf.kind if leaf.piece is None else f"written as {described_array(leaf.kind, leaf.piece)}"


def _is_made_of(piece: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether pieces fill a shape: devices hold parts of equal size."""
    if piece is None:
        return True
    if len(piece) != len(shape):
        return False
    return all(part and length % part == 0 for part, length in zip(piece, shape, strict=True))


def _strings(directory: Path, tree: OrbaxTree) -> dict[str, str]:
    """Texts by the names of their leaves."""
    wanted = [leaf for leaf in tree.leaves if leaf.kind == STRING]
    if not wanted:
        return {}
    held = read_json(directory / STRINGS)
    for leaf in wanted:
        if not isinstance(held, dict) or not isinstance(held.get(leaf.name), str):
            raise DamagedError(f"{directory / STRINGS}: no text of {format_path(leaf.path)}. Take an undamaged copy.")
    return held


def _keys(directory: Path, tree: OrbaxTree) -> dict[Any, str]:
    """The implementations of the PRNG keys, by path."""
    named = {leaf.name: leaf.path for leaf in tree.leaves if leaf.kind in ARRAYS}
    found: dict[Any, str] = {}
    for file in sorted((directory / "array_metadatas").glob("process_*")):
        document = read_json(file)
        try:
            for entry in document["array_metadatas"]:
                told = entry["array_metadata"]
                implementation = (told.get("ext_metadata") or {}).get("random_key_impl")
                if implementation is not None and told["param_name"] in named:
                    found[named[told["param_name"]]] = str(implementation)
        except (KeyError, TypeError, AttributeError) as error:
            raise not_as_written(file, error) from error
    return found


class _Arrays:
    """The arrays of one directory: all are opened and checked before the first is read."""

    def __init__(self, directory: Path, tree: OrbaxTree) -> None:
        self._tensorstore = _tensorstore()
        self._directory = directory
        self._tree = tree
        self._context = self._tensorstore.Context()  # one database, opened once for all of its arrays
        held = sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file())
        self._allowed_bytes = max(UNQUESTIONED_BYTES, MAX_EXPANSION * held)

    def all(self) -> list[Tree]:
        """Every leaf's value."""
        opened = self.opened()
        strings = _strings(self._directory, self._tree)
        reading = [None if array is None else array.read() for array in opened]
        pairs = zip(self._tree.leaves, reading, strict=True)
        return [self._value(leaf, read, strings) for leaf, read in pairs]

    def opened(self) -> Sequence[Any]:
        """The arrays as TensorStore opens them, None where a leaf has none; their sizes are within bounds."""
        opening = [
            self._tensorstore.open(self._place_of(leaf), read=True, open=True, context=self._context)
            if leaf.kind in ARRAYS or leaf.kind == SCALAR
            else None
            for leaf in self._tree.leaves
        ]
        pairs = zip(self._tree.leaves, opening, strict=True)
        return [None if future is None else self._checked(leaf, future) for leaf, future in pairs]

    def _value(self, leaf: OrbaxLeaf, read: Any, strings: dict[str, str]) -> Tree:
        if leaf.kind == STRING:
            return strings[leaf.name]
        if read is None:
            empty = EMPTY[leaf.kind]
            return None if empty is None else type(empty)()
        try:
            value = np.asarray(read.result())
        except _FAILURES as error:
            raise self._unreadable(leaf, _reason(error)) from error
        return _scalar(value) if leaf.kind == SCALAR else value

    def _place_of(self, leaf: OrbaxLeaf) -> dict[str, Any]:
        """Where TensorStore finds the array."""
        files = {"driver": "file", "path": f"{self._directory.absolute()}/"}
        store = {"driver": "ocdbt", "base": files, "path": f"{leaf.name}/"}
        if not self._tree.is_ocdbt:
            store = {**files, "path": f"{files['path']}{leaf.name}/"}
        fills = not self._tree.is_complete
        return {"driver": self._tree.driver, "kvstore": store, "fill_missing_data_reads": fills}

    def _checked(self, leaf: OrbaxLeaf, future: Any) -> Any:
        """Before any memory is allocated for it."""
        try:
            opened = future.result()
        except _FAILURES as error:
            raise self._unreadable(leaf, _reason(error)) from error
        shape, dtype = tuple(opened.shape), opened.dtype.numpy_dtype
        if not _is_made_of(leaf.piece, shape):
            raise self._unreadable(leaf, f"the shape {shape} in the array, written as {leaf.piece} in {METADATA}")
        if dtype.hasobject or (leaf.kind == SCALAR and shape):
            raise self._unreadable(leaf, f"{described_array(dtype, shape)} where {METADATA} has a {leaf.kind}")
        self._allowed_bytes -= prod(shape) * dtype.itemsize
        if self._allowed_bytes < 0:
            message = f"arrays of the shape {shape} and before are larger than such files can hold"
            raise self._unreadable(leaf, message)
        return opened

    def _unreadable(self, leaf: OrbaxLeaf, reason: str) -> DamagedError:
        place = f"{self._directory}: {format_path(leaf.path)}"
        return DamagedError(f"{place}: {reason}. Convert another checkpoint, or take an undamaged copy.")


def _scalar(value: np.ndarray) -> Tree:
    """A number of Python if Orbax made this dtype of one; other dtypes were scalars of NumPy."""
    is_large = value.dtype == np.uint64 and int(value) >> 63
    return value.item() if is_large or value.dtype.name in _PLAIN else value[()]


def _reason(error: Exception) -> str:
    return str(error).partition(" [")[0].partition("\n")[0][:300]


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise UsageError(
            "converting needs TensorStore, which comes with Flax and Orbax and is not installed. "
            "Install the `jax` extra: pip install 'perdure[jax]'"
        ) from error
    return tensorstore
