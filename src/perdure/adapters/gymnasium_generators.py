"""Every random number generator that an environment holds: of its layers, its spaces, its objects."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from perdure.adapters.gymnasium_attributes import state_of
from perdure.adapters.gymnasium_classes import attributes_of, is_plain
from perdure.adapters.numpy_random import new_generator
from perdure.adapters.resolve import Resolver, dotted_name
from perdure.adapters.walk import Walk
from perdure.errors import RestoreError
from perdure.tree.leaves import Tree

_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_LAZY = "_np_random"
"""What environments and spaces make when it is first asked for."""

_EMULATOR = "ale_py._ale_py.ALEInterface"
"""Its generator is not reset by a reset, and is part of its state."""

_WITHOUT = "Box2D."
"""Hundreds of bodies and shapes, none of which holds a generator."""


@dataclass(frozen=True)
class Place:
    """Where a generator is held."""

    holder: Any
    """The object or container."""
    name: Any
    """The attribute, key or position."""
    value: Any
    """The generator; None where there is none yet."""
    of_space: bool
    """Whether a space draws from it, which happens outside of steps."""


def generators_of(env: gymnasium.Env) -> dict[str, Place]:
    """All generators by their path in the environment; one that two places share counts once."""
    found: dict[str, Place] = {}
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("env", env)]
    while pending:
        path, obj = pending.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        for name, value in _parts(obj):
            below = f"{path}/{name}"
            if _is_generator(value) or (value is None and name == _LAZY):
                if value is None or id(value) not in seen:
                    found[below] = Place(obj, name, value, isinstance(obj, gymnasium.Space))
                seen.add(id(value) if value is not None else -1)
            else:
                pending.append((below, value))
    return dict(sorted(found.items()))


def states_of(places: dict[str, Place]) -> dict[str, Tree]:
    """The trees of all of them, None where there is none yet."""
    return {path: Walk(Resolver()).capture(place.value, path) for path, place in places.items()}


def set_states(env: gymnasium.Env, states: dict[str, Tree], *, strict: bool) -> None:
    """Puts the states into the environment's generators, made where there is none yet.

    Args:
        env: the environment.
        states: what `states_of` gave.
        strict: whether other generators than these are an error. Before a reset they are none: an environment may
            make generators in its first reset.

    Raises:
        RestoreError: the environment does not hold these generators.
    """
    places = generators_of(env)
    missing = sorted(states.keys() ^ places.keys()) if strict else []
    if missing:
        raise RestoreError(f"the generator {missing[0]} is not in both environments; build it as the run did")
    for path in sorted(states.keys() & places.keys()):
        _set_state(places[path], states[path], path)


def _set_state(place: Place, state: Tree, path: str) -> None:
    if state is None or place.value is None:
        value = None if state is None else new_generator(state)
        vars(place.holder)[place.name] = value
    else:
        value = place.value
    if value is not None:
        walk = Walk(Resolver())
        findings = walk.check(value, state, path)
        if findings:
            raise RestoreError(str(findings[0]))
        walk.restore(value, state, path)


def _is_generator(value: Any) -> bool:
    return isinstance(value, _GENERATORS) or dotted_name(type(value)) == _EMULATOR


def _parts(obj: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(obj, gymnasium.Env | gymnasium.Space):
        not_yet = {} if isinstance(obj, gymnasium.Wrapper) else {_LAZY: None}
        yield from sorted({**not_yet, **state_of(obj)}.items())
    elif type(obj) in (list, tuple, deque):
        yield from enumerate(obj)
    elif type(obj) is dict:
        yield from obj.items()
    elif is_plain(type(obj)) and not dotted_name(type(obj)).startswith(_WITHOUT):
        yield from attributes_of(obj).items()
