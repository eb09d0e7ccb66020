"""States of flashbax's buffers as rows by position: what did not change since the last checkpoint is shared.

Such a state is a dataclass of JAX arrays, `(add_batch, time, ...)` each, with the position on the time axis and no
count of what was ever added. So row `i` is the time step at index `i`, with a column for each lane of the leading
axes; and what was overwritten or edited since is found by the digests of blocks, over all that the buffer holds.
"""

import dataclasses
from collections import Counter
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perdure.adapters.adapter import Adapter
from perdure.adapters.containers import Dataclass
from perdure.adapters.jax_arrays import on_device_of, refuse_partial, with_weak_type
from perdure.adapters.jax_pytrees import step_of
from perdure.adapters.row_checks import check_rows
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.format.row_nodes import BLOCK_ROWS
from perdure.format.tensors import contiguous_bytes
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.rows import Rows

ROWS = "rows"

LONG_STEPS = 8 * BLOCK_ROWS
"""Time steps from which on there are rows: of a shorter buffer, most would be written again at each checkpoint."""


class State(Dataclass):
    """`TrajectoryBufferState` and `PrioritisedTrajectoryBufferState`, which all of flashbax's rings share.

    A value, like the arrays in it. Its tree is that of the same state without any time steps, which has its structure,
    dtypes and weak types, and the rows beside it.
    """

    id = "flashbax-state"

    def variant(self, obj: Any) -> Adapter:
        """This one for long buffers of JAX arrays; others are saved whole, like any dataclass."""
        return self if _is_long(obj) else _WHOLE

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """What is no experience, and the rows, borrowed.

        Raises:
            CaptureError: an array is deleted (donated) or spans processes.
        """
        for leaf in jax.tree.leaves(obj.experience):
            refuse_partial(leaf, walk)
        return {**super().capture(_without_steps(obj), walk), ROWS: _rows(obj)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same structure, sizes and dtypes."""
        if not isinstance(tree, dict) or ROWS not in tree:
            return [walk.finding(summary(tree), type(obj).__name__, "Build the buffer as the run did.")]
        findings = super().check(_without_steps(obj), _without_rows(tree), walk)
        return findings or check_rows(_rows(obj), tree[ROWS], walk, ROWS, capacity="max_length_time_axis")

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new state, on the target's devices; time steps that were never added are zeros, as they were."""
        restored = super().restore(_without_steps(obj), _without_rows(tree), walk)
        empty, structure = jax.tree.flatten(restored.experience)
        columns = tree[ROWS].columns
        filled = []
        for old, new, names in zip(jax.tree.leaves(obj.experience), empty, _names_of(obj), strict=True):
            lanes = [columns[name] for name in names]
            value = (lanes[0] if len(lanes) == 1 else np.stack(lanes)).reshape(old.shape)
            filled.append(on_device_of(old, with_weak_type(value, weak_type=new.weak_type)))
        return dataclasses.replace(restored, experience=structure.unflatten(filled))


_WHOLE = Dataclass()


def _without_steps(obj: Any) -> Any:
    """The same state with a time axis of length zero."""
    before = (slice(None),) * _time_axis(obj)
    return dataclasses.replace(obj, experience=jax.tree.map(lambda leaf: leaf[(*before, slice(0))], obj.experience))


def _without_rows(tree: dict[Any, Tree]) -> Tree:
    return {name: child for name, child in tree.items() if name != ROWS}


def _time_axis(obj: Any) -> int:
    """Behind the batch axis; states that `vmap` made have more axes before it, and a position for each."""
    return obj.current_index.ndim + 1


def _is_long(obj: Any) -> bool:
    experience = jax.tree.leaves(obj.experience)
    if not all(map(_holds_numbers, [*experience, obj.current_index, obj.is_full])):
        return False
    axis = _time_axis(obj)
    lengths = {leaf.shape[axis] if leaf.ndim > axis else 0 for leaf in experience}
    return len(lengths) == 1 and lengths.pop() >= LONG_STEPS and all(leaf.size for leaf in experience)


def _holds_numbers(leaf: Any) -> bool:
    """Whether it is an array of JAX, and of numbers, not of random keys."""
    return isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _names_of(obj: Any) -> list[list[str]]:
    """The columns' names of each leaf, one a lane."""
    with_paths, _ = jax.tree_util.tree_flatten_with_path(obj.experience)
    names = ["/".join(str(step_of(key)) for key in path) or "experience" for path, _ in with_paths]
    if max(Counter(names).values()) > 1:  # a key with a slash in it
        names = [jax.tree_util.keystr(path) for path, _ in with_paths]
    found = []
    for name, (_, leaf) in zip(names, with_paths, strict=True):
        lanes = prod(leaf.shape[: _time_axis(obj)])
        found.append([f"{name}[{at}]" for at in range(lanes)] if lanes > 1 else [name])
    return found


def _rows(obj: Any) -> Rows:
    axis = _time_axis(obj)
    columns = {}
    for leaf, names in zip(jax.tree.leaves(obj.experience), _names_of(obj), strict=True):
        host = np.ascontiguousarray(np.asarray(leaf))
        columns |= dict(zip(names, host.reshape(-1, *host.shape[axis:]), strict=True))
    positions = set(np.asarray(obj.current_index).reshape(-1).tolist())
    if len(positions) > 1:
        return Rows(0, _length(columns), columns)
    at = positions.pop()
    is_full = bool(np.asarray(obj.is_full).any()) or not all(_is_blank(column[at:]) for column in columns.values())
    return Rows(0, _length(columns) if is_full else at, columns, cut=at)


def _length(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))


def _is_blank(steps: np.ndarray) -> bool:
    """Whether steps that were never added are the zeros that `init` made, bit for bit."""
    return not steps.size or not np.frombuffer(contiguous_bytes(steps), np.uint8).any()
