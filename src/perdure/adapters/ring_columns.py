"""The columns of a `Ring`: their memory, and what may be written to them."""

from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.format.dtypes import name_of

Column = Any
"""A dtype, or a dtype and the shape of one transition's value."""


def natural(name: str, value: Any) -> int:
    """A number of rows or environments.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise UsageError(f"Ring: {name}={value!r}; a whole number from 1.")
    return int(value)


def kind_of(name: Any, column: Column) -> tuple[np.dtype, tuple[int, ...]]:
    """A column's dtype, and the shape of one transition's value.

    Raises:
        UsageError: it is neither, or the name is no identifier.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"Ring: a column named {name!r}; use a plain identifier.")
    dtype, shape = column if isinstance(column, tuple) else (column, ())
    try:
        name_of(np.dtype(dtype))
        return np.dtype(dtype), tuple(int(axis) for axis in shape)
    except (TypeError, ValueError) as error:
        problem = f"{column!r} is neither a dtype nor a dtype and a shape ({error})"
        raise UsageError(f"Ring: column {name!r}: {problem}; for instance (np.float32, (4,)).") from error


def memory_of(folder: Path | None, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The memory of a column: zeros, or a file of `folder`.

    Raises:
        UsageError: the file is of another size.
    """
    if folder is None:
        return np.zeros(shape, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    path, size = folder / f"{name}.column", int(np.prod(shape)) * dtype.itemsize
    if path.exists() and path.stat().st_size != size:
        problem = f"{path.stat().st_size:,} bytes, where this column takes {size:,}"
        raise UsageError(f"Ring: {path} has {problem}. Build the ring as the run did, or remove the file.")
    return np.memmap(path, dtype, "r+" if path.exists() else "w+", shape=shape)


def fitting(verb: str, name: str, value: Any, like: np.ndarray) -> np.ndarray:
    """The value as an array that can stand where `like` stands.

    Raises:
        UsageError: it is of another shape or kind.
    """
    is_literal = type(value) in (bool, int) and like.dtype.kind in "iufc"
    try:
        given = np.array(value, like.dtype) if is_literal else np.asarray(value)
    except OverflowError as error:
        raise UsageError(f"Ring.{verb}: {name}={value} does not fit into {like.dtype}.") from error
    if given.shape != like.shape:
        raise UsageError(f"Ring.{verb}: {name} has the shape {given.shape}; {like.shape} is expected.")
    if not np.can_cast(given.dtype, like.dtype, "same_kind"):
        raise UsageError(f"Ring.{verb}: {name} is {given.dtype}, which does not go into {like.dtype}; convert it.")
    return given
