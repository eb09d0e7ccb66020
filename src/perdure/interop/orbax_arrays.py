"""Arrays that Orbax wrote, as NumPy arrays; every failure of Orbax is one typed error, and sizes are bounded first."""

from collections.abc import Iterator
from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError, UsageError

UNQUESTIONED_BYTES = 1 << 30
"""What arrays may declare whatever their files hold."""

MAX_EXPANSION = 1000
"""Beyond that, how many times larger than their files they may be: they are compressed, and zeros are not stored."""


def read_orbax(directory: Path) -> Any:
    """The tree that `StandardCheckpointer.save` or `PyTreeCheckpointer.save` wrote.

    Args:
        directory: the checkpoint's directory.

    Returns:
        Nested dicts (keys are text) and lists of `np.ndarray`; whatever devices wrote them.

    Raises:
        UsageError: Orbax is not installed.
        DamagedError: the directory is missing, or Orbax cannot read it. Orbax keeps no digest of an array: a flipped bit
            in one passes unnoticed.
    """
    if not directory.is_dir():
        raise DamagedError(
            f"{directory}: missing. nnx-ppo was stopped in the middle of this save; convert the checkpoint before it."
        )
    orbax = _orbax()
    try:
        # The handler, not a Checkpointer around it, which logs what it meets and goes on with None.
        with closing(orbax.PyTreeCheckpointHandler()) as handler:
            described = handler.metadata(directory.absolute()).tree
            _check_sizes(described, directory)
            return handler.restore(directory.absolute(), args=_as_numpy(orbax, described))
    except DamagedError:
        raise
    except Exception as error:  # Orbax and TensorStore raise whatever their parsers meet
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        message = f"{directory}: Orbax cannot read it: {reason}. Convert another checkpoint, or take an undamaged copy."
        raise DamagedError(message) from error


def _orbax() -> Any:
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise UsageError(
            "converting needs Orbax, which is not installed. Install the `jax` extra: pip install 'perdure[jax]'"
        ) from error
    return orbax


def _as_numpy(orbax: Any, described: Any) -> Any:
    import jax

    arguments = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), described)
    return orbax.args.PyTreeRestore(restore_args=arguments)


def _check_sizes(described: Any, directory: Path) -> None:
    """Refuses before anything is allocated what no such files could hold."""
    import jax

    declared = sum(_sizes(jax.tree.leaves(described), directory))
    held = sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file())
    if declared > max(UNQUESTIONED_BYTES, MAX_EXPANSION * held):
        raise DamagedError(
            f"{directory}: arrays of {declared:,} bytes are declared by files of {held:,} bytes. "
            "Take an undamaged copy."
        )


def _sizes(leaves: list[Any], directory: Path) -> Iterator[int]:
    for leaf in leaves:
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None:
            raise DamagedError(f"{directory}: a {type(leaf).__name__} where nnx-ppo writes arrays only.")
        yield prod(shape) * np.dtype(dtype).itemsize
