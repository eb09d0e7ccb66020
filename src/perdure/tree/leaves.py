"""Leaves and nodes: the closed set of values that a tree is made of.

A tree is one of

- a container: `dict` (str or int keys, insertion order kept), `list`, `tuple`;
- a plain leaf: `None`, `bool`, `int` of any size, `float`, `complex`, `str`, `bytes`;
- an `Array`, a `PRNGKey`, `Rows` of append-only data, or an `Alias` of a node elsewhere in the same snapshot.

Everything else (modules, optimizers, environments) is turned into these by an adapter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure.tree.paths import Path
from perdure.tree.rows import Rows

Tree = Any
"""A nested value of the kinds above (Python has no exact type for a recursive union with arrays)."""

PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
"""Exact types of plain leaves; subclasses (enums, NumPy scalars) are not plain."""


@dataclass(frozen=True, eq=False)
class Array:
    """An array leaf. It borrows `value`: whoever needs it past the save makes it `owned`."""

    value: np.ndarray
    """Any shape; any dtype but object. Its memory order is kept, for sums depend on it."""
    weak_type: bool = False
    """JAX's weak type: decides promotions, so losing it changes dtypes later."""
    scalar: bool = False
    """True for a NumPy scalar (`np.float32(1)`), which is not a 0-d array to its user."""
    immutable: bool = False
    """True if nobody can write to the memory of `value` (a view of a JAX array), so that it need not be copied."""

    def owned(self) -> "Array":
        """The same leaf with memory that nobody else can write to, in the same memory order."""
        if self.immutable:
            return self
        return Array(self.value.copy(order="K"), self.weak_type, self.scalar, immutable=True)


@dataclass(frozen=True, eq=False)
class PRNGKey:
    """A typed JAX PRNG key, or an array of them."""

    implementation: str
    """JAX's name of the generator: `threefry2x32`, `rbg`, …"""
    data: Array
    """The key data, dtype uint32, shape: the key array's shape plus the implementation's key shape."""


@dataclass(frozen=True)
class Alias:
    """The same object as the one at `path`: earlier in its component, or in another that is walked before."""

    path: Path


def memory_axes(value: np.ndarray) -> tuple[int, ...]:
    """The axes from the slowest to the fastest in memory; (0, 1, …) for C order.

    Sums over an array depend on its memory order, so an exact copy keeps it, and a difference in it is a
    difference. Gaps, negative strides and the strides of axes of length 1 mean nothing and are not kept.
    """
    identity = tuple(range(value.ndim))
    if value.flags.c_contiguous or value.size == 0:
        return identity
    long = [axis for axis in identity if value.shape[axis] > 1]
    ordered = sorted(long, key=lambda axis: -abs(value.strides[axis]))
    if ordered == long:
        return identity
    return (*(axis for axis in identity if value.shape[axis] == 1), *ordered)


def children(tree: Tree) -> Iterator[tuple[str | int, Tree]]:
    """The direct children of a container as (step, child); nothing for a leaf."""
    if type(tree) in PLAIN_TYPES:  # most are, and asking whether something is a Mapping takes long
        return
    if type(tree) is dict or isinstance(tree, Mapping):
        yield from tree.items()
    elif isinstance(tree, list | tuple):
        yield from enumerate(tree)


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Tree]]:
    """Every leaf below `tree` with its path, in stored order; empty containers count as leaves."""
    empty = True
    for step, child in children(tree):
        empty = False
        yield from leaves(child, (*path, step))
    if empty:
        yield path, tree


def aliases(tree: Tree) -> list[Path]:
    """Where the aliases in a tree point to."""
    return [leaf.path for _, leaf in leaves(tree) if isinstance(leaf, Alias)]


def owned(tree: Tree) -> Tree:
    """The same tree with every array copied, so that later writes to live objects cannot reach it."""
    match tree:
        case dict():
            return {key: owned(child) for key, child in tree.items()}
        case list() | tuple():
            return type(tree)(owned(child) for child in tree)
        case Array():
            return tree.owned()
        case PRNGKey():
            return PRNGKey(tree.implementation, tree.data.owned())
        case Rows():
            return tree.owned()
        case _:
            return tree
