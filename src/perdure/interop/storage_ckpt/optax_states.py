"""optax's states and functions looked into: where Adam's moments and counts are, and what its update binds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perdure.contract.naming import name_of
from perdure.errors import UsageError


@dataclass(frozen=True, eq=False)
class States:
    """What the format can hold of an optimizer."""

    adam: Any
    """optax's `ScaleByAdamState`."""
    counts: tuple[Any, ...]
    """Other counts of updates: those of learning-rate schedules."""


def split_states(opt_state: Any) -> States:
    """Finds Adam's state in a chain.

    Raises:
        UsageError: there is none, there are several, or another transformation keeps something.
    """
    import jax
    import optax

    adam, counts = [], []
    for state in _states(opt_state):
        if isinstance(state, optax.ScaleByAdamState):
            adam.append(state)
        elif isinstance(state, optax.ScaleByScheduleState):
            counts.append(state.count)
        elif jax.tree.leaves(state):
            problem = f"{name_of(type(state))} keeps state, for which the format has no place"
            raise UsageError(f"{problem}. Save without the optimizer, or keep it in a checkpoint of perdure's.")
    if len(adam) != 1:
        raise UsageError(f"{len(adam)} states of Adam in the optimizer, expected one. Save without the optimizer.")
    return States(adam[0], tuple(counts))


def _states(node: Any) -> Iterator[Any]:
    """The states of a chain, chains of chains unfolded."""
    if type(node) is tuple:
        for child in node:
            yield from _states(child)
    else:
        yield node


def bound_betas(transformation: Any) -> tuple[float, float] | None:
    """b1 and b2, if the functions of the transformation bind one pair of numbers by these names."""
    found = set(_pairs(transformation, set()))
    return found.pop() if len(found) == 1 else None


def _pairs(node: Any, seen: set[int]) -> Iterator[tuple[float, float]]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple | list):
        for child in node:
            yield from _pairs(child, seen)
    code, cells = getattr(node, "__code__", None), getattr(node, "__closure__", None)
    if code is None or cells is None:
        return
    bound = dict(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    if isinstance(bound.get("b1"), float | int) and isinstance(bound.get("b2"), float | int):
        yield float(bound["b1"]), float(bound["b2"])
    for child in bound.values():
        yield from _pairs(child, seen)
