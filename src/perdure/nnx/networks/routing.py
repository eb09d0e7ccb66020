"""Modules without parameters that take inputs apart and put them together."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.networks.types import StatefulModule, StatefulModuleOutput

Selection = str | tuple[str | int, ...] | Callable[[Any], Any]
"""A key, a path of keys and positions, or a function of the whole input."""


class Flattener(StatefulModule):
    """Joins a pytree of arrays into one, `[B, n]`: each leaf flattened but for the first axis, in the tree's order."""

    def __init__(self, preserve_levels: int = 0) -> None:
        """Choose how deep.

        Args:
            preserve_levels: Levels of dicts, lists and tuples from the top that stay as they are.

        Raises:
            ValueError: If it is negative.
        """
        if preserve_levels < 0:
            raise ValueError(f"Flattener: preserve_levels must not be negative, got {preserve_levels}.")
        self.preserve_levels = preserve_levels

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Flatten each row."""
        del rollout_extras
        return StatefulModuleOutput(module_state, _flattened(obs, self.preserve_levels))


def _flattened(tree: Any, levels: int) -> Any:
    if levels == 0:
        rows = [leaf.reshape((leaf.shape[0], -1)) for leaf in jax.tree.leaves(tree)]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows, axis=-1)
    if isinstance(tree, Mapping):
        return {key: _flattened(child, levels - 1) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([_flattened(child, levels - 1) for child in tree])
    raise TypeError(
        f"Flattener: a {type(tree).__name__} stands where {levels} more levels of dicts, lists or tuples should stay."
    )


class Filter(StatefulModule):
    """Takes named parts out of the input; what is not named is dropped."""

    def __init__(self, spec: Mapping[str, Selection]) -> None:
        """Name the parts.

        Args:
            spec: Name of the output -> a key, a path, or a function of the whole input.

        Raises:
            TypeError: If it is no dict of these.
        """
        if not isinstance(spec, Mapping):
            raise TypeError(f"Filter: the specification is a {type(spec).__name__}; expected a dict.")
        for name, selection in spec.items():
            if not isinstance(selection, str | tuple) and not callable(selection):
                kind = type(selection).__name__
                raise TypeError(f"Filter: {name!r} is a {kind}; expected a key, a path (a tuple) or a function.")
        self.names = tuple(spec)
        self.selections = tuple(spec.values())

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """A dict of the named parts."""
        del rollout_extras
        parts = {name: _selected(obs, how) for name, how in zip(self.names, self.selections, strict=True)}
        return StatefulModuleOutput(module_state, parts)


def _selected(obs: Any, selection: Selection) -> Any:
    if callable(selection):
        return selection(obs)
    for step in (selection,) if isinstance(selection, str) else selection:
        obs = obs[step]
    return obs


class Scale(StatefulModule):
    """Multiplies every leaf by a fixed factor."""

    def __init__(self, factor: float) -> None:
        """Set the factor."""
        self.factor = float(factor)

    def __call__(self, module_state: Any, obs: Any, rollout_extras: Any = None) -> StatefulModuleOutput:
        """Scale the input."""
        del rollout_extras
        return StatefulModuleOutput(module_state, jax.tree.map(lambda leaf: leaf * self.factor, obs))


class Splitter(StatefulModule):
    """Cuts the last axis into named pieces, in order; what is left over is dropped."""

    def __init__(self, **sizes: int) -> None:
        """Name the pieces and their sizes.

        Raises:
            ValueError: If there is none, or a size is not positive.
        """
        if not sizes or min(sizes.values()) < 1:
            raise ValueError(f"Splitter: at least one piece of a positive size is needed, got {sizes}.")
        self.names = tuple(sizes)
        self.sizes = tuple(sizes.values())

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        """A dict of pieces of `[B, n]`.

        Raises:
            ValueError: If the input is shorter than all pieces.
        """
        del rollout_extras
        if obs.shape[-1] < sum(self.sizes):
            raise ValueError(f"Splitter: the pieces need {sum(self.sizes)} numbers, the input has {obs.shape[-1]}.")
        pieces, start = {}, 0
        for name, size in zip(self.names, self.sizes, strict=True):
            pieces[name] = obs[..., start : start + size]
            start += size
        return StatefulModuleOutput(module_state, pieces)
