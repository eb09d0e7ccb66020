"""Small operations on batched pytrees that JAX does not have."""

import functools
import operator
from collections.abc import Iterable
from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def strong(tree: Tree) -> Tree:
    """The same values as arrays without weak types.

    A weak type (`jnp.asarray(0)`) turns strong in the first arithmetic with an array, so that the second
    iteration would have other input types than the first and compile again; `lax.scan` would refuse it
    outright.
    """

    def convert(leaf: jax.Array) -> jax.Array:
        array = jnp.asarray(leaf)
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return array if is_key else jax.lax.convert_element_type(array, array.dtype)

    return jax.tree.map(convert, tree)


def select(mask: jax.Array, on_true: Tree, on_false: Tree) -> Tree:
    """Rows of `on_true` where `mask` (bool `[B]`) is set, of `on_false` elsewhere; leaves are `[B, ...]`."""

    def pick(when_true: jax.Array, when_false: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (when_true.ndim - 1)), when_true, when_false)

    return jax.tree.map(pick, on_true, on_false)


def flatten_time(tree: Tree) -> Tree:
    """Leaves `[T, B, ...]` as `[T * B, ...]`."""
    return jax.tree.map(lambda x: x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])), tree)


def unflatten_time(tree: Tree, length: int) -> Tree:
    """Leaves `[T * B, ...]` as `[T, B, ...]` with `T = length`."""
    return jax.tree.map(lambda x: x.reshape((length, x.shape[0] // length, *x.shape[1:])), tree)


def same_structure(first: object, second: object) -> bool:
    """Whether two pytrees have the same nesting and keys."""
    return jax.tree.structure(first) == jax.tree.structure(second)


def total(terms: Iterable[jax.Array]) -> jax.Array:
    """The sum of at least one array, from the left; without the integer 0 that `sum` starts from."""
    return functools.reduce(operator.add, terms)
