"""What Orbax's `_METADATA` says of a tree: its leaves, what each is, and how they stand in one another.

Orbax knows two kinds of steps: positions, of lists and tuples alike, and names, of dicts, named tuples and classes
alike. An array is found by its name: the steps that lead to it, joined by dots.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import DamagedError
from perdure.interop.losses import Losses
from perdure.tree.leaves import Tree, leaves
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path

METADATA = "_METADATA"

MAX_DEPTH = 60
"""The most containers inside one another; perdure's own format ends at 64."""

ARRAYS = frozenset({"jax.Array", "np.ndarray"})
SCALAR = "scalar"
STRING = "string"
EMPTY: dict[str, Tree] = {"None": None, "Dict": {}, "List": [], "Tuple": (), "NamedTuple": ()}
"""What Orbax keeps without storing anything."""

_POSITION, _NAME = 1, 2
_NOT_AS_WRITTEN = (KeyError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True)
class OrbaxLeaf:
    """One leaf."""

    path: TreePath
    """The steps that lead to it: names, and integers for positions."""
    kind: str
    """`jax.Array` and its like, `scalar`, `string`, or one of `EMPTY`."""
    piece: tuple[int, ...] | None
    """The shape of the pieces in which devices wrote it; not stated of every kind, and not by older versions."""

    @property
    def name(self) -> str:
        """The name under which it is stored."""
        return ".".join(map(str, self.path))


@dataclass(frozen=True)
class OrbaxTree:
    """All of a `_METADATA`."""

    leaves: Sequence[OrbaxLeaf]
    """In the file's order."""
    driver: str
    """`zarr` or `zarr3`."""
    is_ocdbt: bool
    """Whether all arrays stand in one database; else each has a directory."""
    is_complete: bool
    """Whether zeros were stored, too; else what is missing is zero."""


def read_metadata(directory: Path) -> OrbaxTree:
    """Reads and checks a checkpoint's `_METADATA`.

    Raises:
        DamagedError: it is missing or not as Orbax writes it.
    """
    file = directory / METADATA
    document = _document(file)
    try:
        found = [_leaf(name, entry) for name, entry in document["tree_metadata"].items()]
        tree = OrbaxTree(
            found,
            "zarr3" if document.get("use_zarr3") else "zarr",
            document.get("use_ocdbt", True) is True,
            document.get("store_array_data_equal_to_fill_value", False) is True,
        )
        assembled([leaf.path for leaf in found], [None] * len(found))
        _check_names(tree)
    except _NOT_AS_WRITTEN as error:
        raise not_as_written(file, error) from error
    return tree


def not_as_written(file: Path, error: Exception) -> DamagedError:
    """The refusal of a file that Orbax cannot have written."""
    return DamagedError(f"{file}: not as Orbax writes it: {type(error).__name__} {error}. Take an undamaged copy.")


def read_json(file: Path) -> Any:
    """One of Orbax's small files.

    Raises:
        DamagedError: it is missing or no JSON.
    """
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{file}: missing. Convert another checkpoint, or take an undamaged copy.") from error
    except (ValueError, RecursionError, OSError) as error:
        raise DamagedError(f"{file}: no JSON: {error}. Take an undamaged copy.") from error


def _document(file: Path) -> dict[str, Any]:
    document = read_json(file)
    if not isinstance(document, dict) or "tree_metadata" not in document:
        raise DamagedError(f"{file}: without tree_metadata, which Orbax writes. Take an undamaged copy.")
    return document


def _leaf(name: str, entry: dict[str, Any]) -> OrbaxLeaf:
    """One leaf; its steps stand there twice, as a tuple in the name and one by one."""
    keys, value = entry["key_metadata"], entry["value_metadata"]
    texts = tuple(key["key"] for key in keys)
    if name != str(texts) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"at {name[:80]!a}")
    if not 0 < len(texts) <= MAX_DEPTH:
        raise TypeError(f"{len(texts)} keys in a row")
    kind = value["value_type"]
    if kind not in ARRAYS | EMPTY.keys() | {SCALAR, STRING}:
        raise TypeError(f"{str(kind)[:40]!a} at {name[:80]!a}, which Orbax's own handlers do not write")
    shape = value.get("write_shape")
    path = tuple(_step(key["key"], key["key_type"]) for key in keys)
    return OrbaxLeaf(path, kind, None if shape is None else _shape(shape))


def _step(text: str, key_type: Any) -> str | int:
    if key_type == _NAME:
        return text
    if key_type != _POSITION or str(int(text)) != text or int(text) < 0:
        raise TypeError(f"a key {text[:80]!a} of the type {repr(key_type)[:40]}")
    return int(text)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise TypeError(f"the shape {str(shape)[:80]}")
    return tuple(shape)


def _check_names(tree: OrbaxTree) -> None:
    """Two leaves of one name share one array: Orbax has written one of them over the other."""
    places: dict[str, TreePath] = {}
    for leaf in tree.leaves:
        if leaf.kind in EMPTY:
            continue
        if leaf.name in places:
            both = f"{format_path(leaf.path)} and {format_path(places[leaf.name])}"
            raise ValueError(f"{both} share the name {leaf.name!a}: one was written over the other")
        places[leaf.name] = leaf.path
        steps = leaf.name.split("/")
        if not tree.is_ocdbt and (leaf.name.startswith("/") or "\0" in leaf.name or {"..", ".", ""} & set(steps)):
            raise ValueError(f"the name {leaf.name[:80]!a} leads out of its directory, or to none")


def assembled(paths: Sequence[TreePath], values: Iterable[Tree]) -> Tree:
    """The nested tree of leaves.

    Raises:
        TypeError: two leaves stand in one place, or positions have gaps.
    """
    root: dict[str | int, Tree] = {}
    branches = {id(root)}
    for path, value in zip(paths, values, strict=True):
        owner = root
        for step in path[:-1]:
            if step not in owner:
                owner[step] = {}
                branches.add(id(owner[step]))
            owner = owner[step]
            if id(owner) not in branches:
                raise TypeError(f"two leaves at {format_path(path)}")
        if path[-1] in owner:
            raise TypeError(f"two leaves at {format_path(path)}")
        owner[path[-1]] = value
    return _with_lists(root, branches)


def _with_lists(node: Tree, branches: set[int], path: TreePath = ()) -> Tree:
    """Dicts of positions as lists; `branches` are the identities of the dicts that are no leaves."""
    if id(node) not in branches:
        return node
    below = {step: _with_lists(child, branches, (*path, step)) for step, child in node.items()}
    positions = sum(isinstance(step, int) for step in below)
    if not positions:
        return below
    if positions < len(below) or below.keys() != set(range(positions)):
        raise TypeError(f"positions with gaps, or beside names, at {format_path(path)}")
    return [below[at] for at in range(positions)]


def note_classes(tree: Tree, losses: Losses) -> None:
    """Notes what Orbax does not say of the containers: whether lists were tuples, and dicts of which class."""
    seen: set[TreePath] = set()
    for path, _ in leaves(tree):
        for length in range(len(path)):
            if isinstance(path[length], int) and path[:length] not in seen:
                seen.add(path[:length])
                losses.add(path[:length] or "root", "a list or a tuple, Orbax does not say which; it is a list.")
    losses.add("dicts", "Orbax does not say which of them were named tuples or objects of a class; all are dicts.")
