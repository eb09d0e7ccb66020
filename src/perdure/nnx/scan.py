"""Whole trainings in one `lax.scan`, cut into compiled chunks with a boundary after each."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from perdure import Run, UsageError

Carry = TypeVar("Carry")


def scan(
    step: Callable[[Carry, None], tuple[Carry, Any]],
    state: Carry,
    length: int,
    *,
    run: Run,
    chunk: int,
    env_steps_per_step: int = 1,
) -> tuple[Carry, Any]:
    """`jax.lax.scan(step, state, None, length)` that can be stopped anywhere and resumed exactly.

    The outer scan becomes a loop on the host over compiled chunks; the result is the same to the last bit. Meant for
    scripts whose whole training sits in one `jit`: hand over the function that the outer scan repeats, and its carry.

    Args:
        step: As for `lax.scan`: takes the carry and None, returns the carry and an output, a pytree of arrays.
        state: The carry at the start of a fresh run, a pytree of arrays and keys: everything the training needs.
        length: Number of steps in all.
        run: Opened by `restore` here, finished at the end; its cadence decides which boundaries are saved.
        chunk: Steps between boundaries. A resume may choose another.
        env_steps_per_step: Environment steps that one step takes, for the run's counters.

    Returns:
        The last carry, and the outputs of all steps stacked, those before a resume included. Outputs are part of what
        is saved, so keep them small.

    Raises:
        perdure.UsageError: If a length is not positive, or an output holds keys.
        perdure.PerdureError: What restoring and saving raise.
    """
    for name, value in (("length", length), ("chunk", chunk), ("env_steps_per_step", env_steps_per_step)):
        if value < 1:
            raise UsageError(f"scan: {name}={value!r}; expected at least 1.")
    structure = _output_structure(step, state)
    restored = run.restore(state=state, outputs=[])
    carry, outputs = restored.state, restored.outputs
    done = run.env_steps // env_steps_per_step
    advance = jax.jit(lambda carry, steps: jax.lax.scan(step, carry, None, steps), static_argnums=1)
    while done < length:
        steps = min(chunk, length - done)
        carry, output = advance(carry, steps)
        outputs.append([np.asarray(leaf) for leaf in jax.tree.leaves(output)])
        done += steps
        run.boundary(env_steps=done * env_steps_per_step, state=carry, outputs=outputs)
    run.finish(env_steps=run.env_steps, state=carry, outputs=outputs)
    return carry, jax.tree.unflatten(structure, [np.concatenate(parts) for parts in zip(*outputs, strict=True)])


def _output_structure(step: Callable[..., Any], state: Any) -> Any:
    """The structure of one step's output; nothing is computed."""
    _, output = jax.eval_shape(step, state, None)
    for path, leaf in jax.tree_util.tree_leaves_with_path(output):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            place = jax.tree_util.keystr(path, simple=True, separator="/")
            raise UsageError(f"scan: the output {place or 'of a step'} is a key; put keys into the carry.")
    return jax.tree.structure(output)
