"""Arrays that Orbax wrote, as NumPy arrays: its `_METADATA` names them, and TensorStore reads them.

Orbax itself is not asked: it reads all arrays at once and allocates whatever they declare. Here each is opened alone,
and compared with what `_METADATA` and the files can hold before its memory is allocated.
"""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError, UsageError
from perdure.tree.paths import format_path

METADATA = "_METADATA"

UNQUESTIONED_BYTES = 1 << 30
"""What the arrays of a directory may take, whatever its files hold."""

MAX_EXPANSION = 1000
"""Beyond that, how many times larger than the files they may be: they are compressed."""

MAX_DEPTH = 60
"""The most dicts inside one another; perdure's own format ends at 64."""

_ARRAYS = frozenset({"jax.Array", "np.ndarray", "scalar"})
_DICT_KEY = 2


@dataclass(frozen=True)
class _Leaf:
    """What `_METADATA` says of one leaf."""

    path: tuple[str, ...]
    """Keys of the dicts that lead to it."""
    kind: str
    """`jax.Array` and its like, or `None` or `Dict` where nothing is stored."""
    shape: tuple[int, ...] | None
    """The shape that was written; older versions do not state it."""


def read_orbax(directory: Path) -> dict[str, Any]:
    """The tree of arrays that Orbax's `StandardCheckpointer.save` wrote of a `flax.nnx` state.

    Args:
        directory: the checkpoint's directory.

    Returns:
        Nested dicts, their keys text, of `np.ndarray` with the dtypes and shapes that were saved, whatever devices held
        them; empty dicts and None where these were saved.

    Raises:
        UsageError: TensorStore is not installed.
        DamagedError: the directory or a part of it is missing, contradicts itself or cannot be read. There is no digest
            of an array in it: a flipped bit in one may pass unnoticed.
    """
    if not directory.is_dir():
        raise DamagedError(
            f"{directory}: missing. nnx-ppo was stopped in the middle of this save; convert the checkpoint before it."
        )
    document = _document(directory / METADATA)
    try:
        named = [_leaf(name, entry) for name, entry in document["tree_metadata"].items()]
        tree = _Arrays(directory, document).all(named)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{directory / METADATA}: not as Orbax writes it: {type(error).__name__} {error}. Take an undamaged copy."
        ) from error
    return tree


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{file}: missing. Convert another checkpoint, or take an undamaged copy.") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{file}: no JSON: {error}. Take an undamaged copy.") from error
    if not isinstance(document, dict) or "tree_metadata" not in document:
        raise DamagedError(f"{file}: without tree_metadata, which Orbax writes. Take an undamaged copy.")
    return document


def _leaf(name: str, entry: dict[str, Any]) -> _Leaf:
    """One leaf; its keys stand there twice, as a tuple in the name and one by one."""
    keys, value = entry["key_metadata"], entry["value_metadata"]
    path = tuple(key["key"] for key in keys)
    if name != str(path) or any(key["key_type"] != _DICT_KEY for key in keys):
        raise TypeError(f"at {name[:80]!a}")
    if not 0 < len(path) <= MAX_DEPTH:
        raise TypeError(f"{len(path)} keys in a row")
    shape = value.get("write_shape")
    return _Leaf(path, value["value_type"], None if shape is None else tuple(shape))


class _Arrays:
    """The arrays of one directory, read one by one."""

    def __init__(self, directory: Path, document: dict[str, Any]) -> None:
        self._directory = directory
        self._driver = "zarr3" if document.get("use_zarr3") else "zarr"
        self._is_ocdbt = document.get("use_ocdbt", True) is True
        self._is_complete = document.get("store_array_data_equal_to_fill_value", False) is True
        held = sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file())
        self._allowed_bytes = max(UNQUESTIONED_BYTES, MAX_EXPANSION * held)
        self._tensorstore = _tensorstore()

    def all(self, named: list[_Leaf]) -> dict[str, Any]:
        """Every leaf in its place."""
        tree: dict[str, Any] = {}
        for leaf in named:
            owner = tree
            for step in leaf.path[:-1]:
                owner = owner.setdefault(step, {})
            if not isinstance(owner, dict) or leaf.path[-1] in owner:
                raise TypeError(f"two leaves at {format_path(leaf.path)}")
            owner[leaf.path[-1]] = self._value(leaf)
        return tree

    def _value(self, leaf: _Leaf) -> Any:
        if leaf.kind == "None":
            return None
        if leaf.kind == "Dict":
            return {}
        if leaf.kind not in _ARRAYS:
            raise TypeError(f"{str(leaf.kind)[:40]!a} where nnx-ppo writes arrays only")
        place = f"{self._directory}: {format_path(leaf.path)}"
        try:
            opened = self._tensorstore.open(self._place_of(leaf), read=True, open=True).result()
            self._check(opened, leaf, place)
            return np.asarray(opened.read().result())
        except (ValueError, OSError, RuntimeError, NotImplementedError) as error:  # what TensorStore's statuses become
            reason = str(error).partition(" [")[0].partition("\n")[0][:300]
            raise _unreadable(place, reason) from error

    def _place_of(self, leaf: _Leaf) -> dict[str, Any]:
        """Where TensorStore finds the array."""
        name = ".".join(leaf.path)
        files = {"driver": "file", "path": f"{self._directory.absolute()}/"}
        store = {"driver": "ocdbt", "base": files, "path": f"{name}/"}
        if not self._is_ocdbt:
            store = {**files, "path": f"{files['path']}{name}/"}
        return {"driver": self._driver, "kvstore": store, "fill_missing_data_reads": not self._is_complete}

    def _check(self, opened: Any, leaf: _Leaf, place: str) -> None:
        """Before any memory is allocated for it."""
        shape = tuple(opened.shape)
        if leaf.shape is not None and leaf.shape != shape:
            raise _unreadable(place, f"the shape {shape} in the array, {leaf.shape} in {METADATA}")
        self._allowed_bytes -= prod(shape) * opened.dtype.numpy_dtype.itemsize
        if self._allowed_bytes < 0:
            raise _unreadable(place, f"arrays of the shape {shape} and before are larger than such files can hold")


def _unreadable(place: str, reason: str) -> DamagedError:
    return DamagedError(f"{place}: {reason}. Convert another checkpoint, or take an undamaged copy.")


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise UsageError(
            "converting needs TensorStore, which comes with Flax and Orbax and is not installed. "
            "Install the `jax` extra: pip install 'perdure[jax]'"
        ) from error
    return tensorstore
