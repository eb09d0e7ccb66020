"""Differences between two snapshots, leaf by leaf and bit by bit."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perdure.tree.leaves import Alias, Array, PRNGKey, Tree, children, memory_axes
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot


@dataclass(frozen=True)
class Difference:
    """One leaf that is not equal."""

    path: str
    """`component/…/leaf`."""
    first: str
    """What the first snapshot holds there, shortened for reading."""
    second: str
    """What the second snapshot holds there."""

    def __str__(self) -> str:
        return f"{self.path}: {self.first} | {self.second}"


ABSENT = "absent"

LONGEST_INT_BITS = 1000
"""Longer integers are not spelled out; Python refuses to beyond 4,300 digits."""


def diff_snapshots(first: Snapshot, second: Snapshot) -> list[Difference]:
    """Every difference in components and counters; empty means bit-identical."""
    found = [
        Difference(name, str(getattr(first, name)), str(getattr(second, name)))
        for name in ("env_steps", "updates", "boundary")
        if getattr(first, name) != getattr(second, name)
    ]
    pair = _Pair(first, second)
    for name in sorted(first.components.keys() | second.components.keys()):
        if name not in first.components:
            found.append(Difference(name, ABSENT, "a component"))
        elif name not in second.components:
            found.append(Difference(name, "a component", ABSENT))
        else:
            found += pair.diff(first.components[name].tree, second.components[name].tree, (name,))
    return found


class _Pair:
    """Two snapshots under comparison, and which of their shared nodes were compared already."""

    def __init__(self, first: Snapshot, second: Snapshot) -> None:
        self._first, self._second = first, second
        self._compared: set[tuple[Path, Path]] = set()

    def diff(self, a: Tree, b: Tree, path: Path) -> Iterator[Difference]:
        """The differences at and below `path`; a shared node is compared where it first stands."""
        if isinstance(a, Alias) or isinstance(b, Alias):
            places = tuple(tree.path if isinstance(tree, Alias) else path for tree in (a, b))
            if places[0] == places[1] or places in self._compared:
                return
            self._compared.add((places[0], places[1]))
            a, b = self._first.resolve(a), self._second.resolve(b)
        if type(a) is type(b) and isinstance(a, dict | list | tuple):
            yield from self._diff_children(a, b, path)
        elif not same_leaf(a, b):
            yield Difference(format_path(path), *_telling(a, b))

    def _diff_children(self, a: Tree, b: Tree, path: Path) -> Iterator[Difference]:
        left, right = dict(children(a)), dict(children(b))
        for step in [*left, *(key for key in right if key not in left)]:
            if step not in right:
                yield Difference(format_path((*path, step)), summary(left[step]), ABSENT)
            elif step not in left:
                yield Difference(format_path((*path, step)), ABSENT, summary(right[step]))
            else:
                yield from self.diff(left[step], right[step], (*path, step))


def same_leaf(a: Tree, b: Tree) -> bool:
    """Whether two leaves are equal in kind, dtype, shape, weak type and every bit.

    An array's memory order counts as well: it decides the order of sums. Empty containers are leaves too.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, Array):
        return _same_array(a, b)
    if isinstance(a, PRNGKey):
        return a.implementation == b.implementation and _same_array(a.data, b.data)
    if isinstance(a, Rows):
        return _same_rows(a, b)
    if isinstance(a, float | complex):
        return np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return a == b


def _same_rows(a: Rows, b: Rows) -> bool:
    layouts = [
        (rows.start, rows.stop, rows.capacity, {name: (c.dtype, c.shape) for name, c in rows.columns.items()})
        for rows in (a, b)
    ]
    return layouts[0] == layouts[1] and all(
        first.tobytes() == second.tobytes()
        for name in a.columns
        for first, second in zip(a.views(name, a.start, a.stop), b.views(name, b.start, b.stop), strict=True)
    )


def _same_array(a: Array, b: Array) -> bool:
    return (
        (a.value.dtype, a.value.shape, a.weak_type, a.scalar) == (b.value.dtype, b.value.shape, b.weak_type, b.scalar)
        and memory_axes(a.value) == memory_axes(b.value)
        and a.value.tobytes() == b.value.tobytes()
    )


def summary(tree: Tree) -> str:
    """A node in a few words, for messages."""
    match tree:
        case Array(value=value, weak_type=weak_type):
            shape = "×".join(map(str, value.shape)) or "scalar"
            weak = ", weak type" if weak_type else ""
            axes = memory_axes(value)
            order = "" if axes == tuple(range(value.ndim)) else f", memory order {axes}"
            number = f" {value.reshape(-1)[0]!s}" if value.size == 1 else ""
            return f"{value.dtype} {shape}{weak}{order}{number}"
        case PRNGKey(implementation=implementation, data=data):
            return f"{implementation} key {data.value.reshape(-1).tolist()[:4]}"
        case Rows():
            return f"rows {tree.start} to {tree.stop} of {', '.join(tree.columns)}"
        case dict() | list() | tuple():
            return f"{type(tree).__name__} of {len(tree)}"
        case bytes():
            return f"{len(tree)} bytes"
        case int() if tree.bit_length() > LONGEST_INT_BITS:
            return f"an int of {tree.bit_length()} bits"
        case _:
            text = repr(tree)
            return text if len(text) <= 60 else text[:57] + "…"


def _telling(a: Tree, b: Tree) -> tuple[str, str]:
    """Both summaries, with the first element that differs where the two read alike."""
    at = _first_unequal(a.value, b.value) if isinstance(a, Array) and isinstance(b, Array) else None
    if at is None:
        return summary(a), summary(b)
    first, second = a.value.reshape(-1)[at], b.value.reshape(-1)[at]
    if str(first) == str(second):  # NaNs of different payloads
        return f"{summary(a)} [{at}] = 0x{first.tobytes().hex()}", f"{summary(b)} [{at}] = 0x{second.tobytes().hex()}"
    return f"{summary(a)} [{at}] = {first!s}", f"{summary(b)} [{at}] = {second!s}"


def _first_unequal(a: np.ndarray, b: np.ndarray) -> int | None:
    if a.dtype != b.dtype or a.shape != b.shape or a.size < 2:
        return None
    left = np.frombuffer(a.tobytes(), np.uint8).reshape(a.size, -1)
    right = np.frombuffer(b.tobytes(), np.uint8).reshape(b.size, -1)
    unequal = np.flatnonzero((left != right).any(axis=1))
    return int(unequal[0]) if unequal.size else None
