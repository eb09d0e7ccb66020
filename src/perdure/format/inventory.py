"""What a manifest says is in a checkpoint, leaf by leaf, without a look at the tensor files."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from perdure.format.manifest import ComponentEntry
from perdure.format.nodes import StoredArray, decode_node
from perdure.format.row_nodes import StoredRows
from perdure.tree.diff import summary
from perdure.tree.leaves import Alias, Array, PRNGKey, Tree, leaves
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot


@dataclass(frozen=True)
class LeafEntry:
    """One leaf as the manifest describes it."""

    path: str
    """`component/…/leaf`."""
    what: str
    """dtype and shape of an array, or the value itself, or what it is shared with."""
    size_bytes: int
    """Bytes of its array; 0 for a leaf that stands in the manifest."""


def inventory(component: str, entry: ComponentEntry) -> list[LeafEntry]:
    """Every leaf of a component in stored order.

    Raises:
        DamagedError: the component's structure is malformed.
    """
    stored: dict[Path, StoredArray | StoredRows] = {}

    def note(path: Path, array: StoredArray) -> np.ndarray:
        stored[path] = array
        return np.zeros((), array.dtype)

    def note_rows(path: Path, rows: StoredRows) -> Rows:
        stored[path] = rows
        return Rows(0, 0, {name: np.zeros(0, dtype) for name, (dtype, _) in rows.columns.items()})

    tree = decode_node(entry.tree, (component,), note, note_rows)
    return [_entry(path, leaf, stored.get(path)) for path, leaf in leaves(tree, (component,))]


def _entry(path: Path, leaf: Tree, array: StoredArray | StoredRows | None) -> LeafEntry:
    text = format_path(path)
    if isinstance(array, StoredRows):
        row_bytes = sum(prod(shape) * dtype.itemsize for dtype, shape in array.columns.values())
        kinds = (f"{name} {dtype} {_shape(shape)}" for name, (dtype, shape) in array.columns.items())
        what = f"rows {array.start:,} to {array.stop:,}, at most {array.capacity:,}: {', '.join(kinds)}"
        return LeafEntry(text, what, (array.stop - array.start) * row_bytes)
    if array is None:
        what = f"the same as {format_path(leaf.path)}" if isinstance(leaf, Alias) else summary(leaf)
        return LeafEntry(text, what, 0)
    kind = f"{leaf.implementation} key, " if isinstance(leaf, PRNGKey) else ""
    weak = ", weak type" if isinstance(leaf, Array) and leaf.weak_type else ""
    return LeafEntry(text, f"{kind}{array.dtype} {_shape(array.shape)}{weak}", array.place.length)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def count_leaves(snapshot: Snapshot) -> int:
    """How many leaves a snapshot holds; one that is shared counts once."""
    return sum(1 for _ in _own_leaves(snapshot))


def _own_leaves(snapshot: Snapshot) -> Iterator[Tree]:
    for component in snapshot.components.values():
        yield from (leaf for _, leaf in leaves(component.tree) if not isinstance(leaf, Alias))
