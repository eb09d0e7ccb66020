"""Amending: an accepted value takes the place of the old one wherever the state holds a copy of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.contract.overrides import Accepted
from perdure.tree.leaves import PLAIN_TYPES, Array, Tree, children, leaves
from perdure.tree.paths import Path, format_path
from perdure.tree.snapshot import Component, Snapshot

Number = int | float

MOST_START_NUMBERS = 10_000
"""A state with more numbers than this is a table, of which no contract keeps a copy."""


@dataclass(frozen=True)
class Amended:
    """A snapshot with accepted values."""

    snapshot: Snapshot
    """The state to restore."""
    applied: tuple[str, ...]
    """Paths of the leaves that now hold what the fresh start holds."""
    unlike: tuple[str, ...]
    """Paths of numbers that start with another value than in the run and were left as the checkpoint has them."""
    missed: tuple[str, ...] = ()
    """Accepted paths at which the checkpoint holds no such leaf, so that the new value has no place there."""


def start_numbers(snapshot: Snapshot) -> dict[str, Number]:
    """Every number that a fresh start holds, by path: the places where copies of a hyper-parameter may be."""
    found = {format_path(path): number for path, _, number in _numbers(snapshot)}
    return found if len(found) <= MOST_START_NUMBERS else {}


def amend(snapshot: Snapshot, fresh: Snapshot, accepted: Sequence[Accepted], start: Mapping[str, Number]) -> Amended:
    """Puts accepted values into a state.

    A leaf is replaced by the fresh start's if its own path was accepted, or if it is a copy: the run started with the
    old value there, and a fresh start holds the new one (or both with the other sign). An adapted learning rate in a
    module's attribute, in `optax.inject_hyperparams` or in a value of the script is such a copy, whatever it is now.

    Args:
        snapshot: the checkpoint's state.
        fresh: the state of the targets before the restore.
        accepted: what was accepted.
        start: the numbers that the run started with, by path.
    """
    new_leaves = {format_path(path): leaf for path, leaf in _plain_leaves(fresh)}
    numbers = {format_path(path): (leaf, number) for path, leaf, number in _numbers(fresh)}
    keys = {acceptance.key for acceptance in accepted}
    pairs = [acceptance.values for acceptance in accepted if all(map(_is_number, acceptance.values))]
    copies = {
        path
        for path, (leaf, number) in numbers.items()
        if path in start and any(_is_copy(start[path], number, leaf, pair) for pair in pairs)
    }
    places = (keys | copies) & new_leaves.keys()
    held = {format_path(path) for path, _ in _plain_leaves(snapshot)} & places
    amended = _with_leaves(snapshot, {path: new_leaves[path] for path in held})
    starts_otherwise = [path for path, (_, number) in numbers.items() if _is_other(start.get(path, number), number)]
    unlike = [path for path in starts_otherwise if path not in held]
    missed = sorted(keys & new_leaves.keys() - held)
    return Amended(amended, tuple(sorted(held)), tuple(sorted(unlike)), tuple(missed))


def _numbers(snapshot: Snapshot) -> list[tuple[Path, Tree, Number]]:
    return [(path, leaf, number) for path, leaf in _plain_leaves(snapshot) if (number := _number(leaf)) is not None]


_GENERATORS = frozenset({"numpy-generator", "numpy-bit-generator", "numpy-random-state", "numpy-seed-sequence"})
_GENERATORS |= {"python-random", "process-rng"}
"""Ids of adapters whose trees are states of generators: large numbers that nobody chose."""


def _plain_leaves(snapshot: Snapshot) -> list[tuple[Path, Tree]]:
    """Plain leaves and arrays, but for those of generators."""
    return [
        (path, leaf)
        for name, part in snapshot.components.items()
        if name != PROCESS_RNG and part.adapter not in _GENERATORS
        for path, leaf in leaves(part.tree, (name,))
        if type(leaf) in (*PLAIN_TYPES, Array) and not _is_in_a_generator(path, part)
    ]


def _is_in_a_generator(path: Path, part: Component) -> bool:
    return any(part.made.get(path[:length]) in _GENERATORS for length in range(1, len(path)))


def _number(leaf: Tree) -> Number | None:
    """The number that a leaf holds, once or in every element (a rate for each member of a population)."""
    value: object = _element_of(leaf.value) if isinstance(leaf, Array) else leaf
    return value if isinstance(value, int | float) and _is_number(value) else None


def _element_of(array: np.ndarray) -> object:
    """The element that all are equal to; not zeros with axes, where moments and biases begin and which nobody chose."""
    if array.dtype.kind not in "iufV" or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    if array.ndim == 0:
        return first.item()
    return first.item() if first and (array == first).all() else None


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_other(start: Number, fresh: Number) -> bool:
    return start != fresh and (start == start or fresh == fresh)  # NaN differs from itself alone


def _is_copy(start: Number, fresh: Number, leaf: Tree, pair: tuple[Number, Number]) -> bool:
    if start == fresh:
        return False
    rounded = _rounding_of(leaf)
    return any((rounded(sign * pair[0]), rounded(sign * pair[1])) == (start, fresh) for sign in (1, -1))


def _rounding_of(leaf: Tree) -> Callable[[Number], Number | None]:
    """What becomes of a number that is put into the leaf: `3e-4` is another number as a float32."""
    if not isinstance(leaf, Array):
        return lambda number: number
    dtype = leaf.value.dtype

    def rounded(number: Number) -> Number | None:
        try:
            with np.errstate(all="ignore"):
                return dtype.type(number).item()
        except (OverflowError, TypeError):  # -1 as an unsigned integer
            return None

    return rounded


def _with_leaves(snapshot: Snapshot, new: Mapping[str, Tree]) -> Snapshot:
    if not new:
        return snapshot
    components = {
        name: replace(part, tree=_replaced(part.tree, (name,), new)) for name, part in snapshot.components.items()
    }
    return replace(snapshot, components=components)


def _replaced(tree: Tree, path: Path, new: Mapping[str, Tree]) -> Tree:
    if isinstance(tree, dict):
        return {step: _replaced(child, (*path, step), new) for step, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_replaced(child, (*path, step), new) for step, child in children(tree))
    return new.get(format_path(path), tree)
