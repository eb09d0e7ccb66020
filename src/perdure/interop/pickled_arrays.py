"""Arrays, scalars and PRNG keys of NumPy and JAX in a pickle that was read without running it.

The tables name the functions that NumPy 1 and 2 and JAX 0.4 to 0.10 put into pickles. Each shape is taken apart by
hand; whatever does not look exactly like it is refused, and memory is only ever a view of the file's own bytes.
"""

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from perdure.errors import DamagedError, UnsupportedLeafError
from perdure.format.dtypes import dtype_of
from perdure.interop.pickled_values import Name, Record

MAX_AXES = 32
"""The most axes of an array; JAX and NumPy 1 have no more."""

KEY_SHAPES = {"threefry2x32": (2,), "rbg": (4,), "unsafe_rbg": (4,)}
"""JAX's own PRNG implementations, and the shape of one key's data."""

_NDARRAY = frozenset({"numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct"})
_FROM_BUFFER = frozenset({"numpy._core.numeric._frombuffer", "numpy.core.numeric._frombuffer"})
_SCALAR = frozenset({"numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar"})
_JAX_ARRAY = frozenset({"jax._src.array._reconstruct_array"})
_JAX_KEY = frozenset({"jax._src.random.prng.PRNGKeyArray", "jax._src.prng.PRNGKeyArray"})
_CODE = re.compile(r"b1|[iuf][1248]|c(?:8|16)|[US]\d{1,6}")


@dataclass(frozen=True, eq=False)
class PickledArray:
    """An array of NumPy or JAX."""

    value: np.ndarray | np.generic
    """The values: a read-only view of the file's bytes, or a NumPy scalar."""
    weak_type: bool = False
    """JAX's weak type."""


@dataclass(frozen=True, eq=False)
class PickledKey:
    """A typed PRNG key of JAX, or an array of them."""

    implementation: str
    """JAX's name of the generator; not necessarily one of `KEY_SHAPES`."""
    data: np.ndarray
    """Dtype uint32; the shape of the key array, and then that of one key's data."""


def array_in(record: Record, place: str) -> PickledArray | PickledKey | None:
    """The array or key that a record stands for; None if it stands for something else.

    Args:
        record: from `read_pickle`.
        place: where it stands, for messages.

    Raises:
        DamagedError: it names an array, but is none: lengths do not match, parts are missing.
        UnsupportedLeafError: an array of objects or of records.
    """
    try:
        return _array_in(record)
    except UnsupportedLeafError as error:
        raise UnsupportedLeafError(f"{place}: {error}") from error
    except (DamagedError, ValueError, TypeError, OverflowError) as error:
        raise DamagedError(
            f"{place}: no {record.made_by} as NumPy and JAX write it: {error}. Take an undamaged copy of the file."
        ) from error


def _array_in(record: Record) -> PickledArray | PickledKey | None:
    name = str(record.made_by)
    if name in _NDARRAY:
        return PickledArray(_from_state(record.state))
    if name in _FROM_BUFFER:
        data, dtype, shape, order = _parts(record.arguments, 4)
        return PickledArray(_view(data, dtype, shape, is_fortran=order == "F"))
    if name in _SCALAR:
        dtype, data = _parts(record.arguments, 2)
        return PickledArray(_view(data, dtype, (), is_fortran=False)[()])
    if name in _JAX_ARRAY:
        return _jax_array(record)
    return _jax_key(record) if name in _JAX_KEY else None


def _jax_array(record: Record) -> PickledArray:
    function, _, state, about = _parts(record.arguments, 4)
    if str(function) not in _NDARRAY or not isinstance(about, dict):
        raise DamagedError(f"it is made by {function}")
    return PickledArray(_from_state(state), weak_type=about.get("weak_type") is True)


def _jax_key(record: Record) -> PickledKey:
    if not isinstance(record.state, dict):
        raise DamagedError("it has no state")
    implementation, data = record.state.get("_impl"), record.state.get("_base_array")
    if not isinstance(implementation, Record) or not isinstance(data, Record):
        raise DamagedError("its implementation or its data is missing")
    array = _array_in(data)
    if not isinstance(array, PickledArray) or not isinstance(array.value, np.ndarray):
        raise DamagedError("its data is no array")
    return PickledKey(_implementation(implementation, array.value), array.value)


def _implementation(record: Record, data: np.ndarray) -> str:
    """The implementation's name: the last but one argument, before its short tag."""
    arguments = record.arguments
    name = arguments[-2] if len(arguments) >= 2 else None
    if record.made_by.name != "PRNGImpl" or not isinstance(name, str) or not name.isidentifier():
        raise DamagedError("its implementation has no name")
    shape = KEY_SHAPES.get(name)
    if data.dtype != np.uint32 or (shape is not None and data.shape[-1:] != shape):
        raise DamagedError(f"{data.dtype} of the shape {data.shape} is no key of {name}")
    return name


def _from_state(state: Any) -> np.ndarray:
    _, shape, dtype, is_fortran, data = _parts(state, 5)
    return _view(data, dtype, shape, is_fortran=is_fortran is True)


def _view(data: Any, dtype: Any, shape: Any, *, is_fortran: bool) -> np.ndarray:
    """The file's bytes as an array; nothing is allocated, whatever the shape says."""
    kind = _dtype(dtype)
    axes = _shape(shape)
    data = bytes_in(data)
    if not isinstance(data, bytes):
        raise UnsupportedLeafError(f"an array of {kind} without bytes: objects have no exact form. Use plain numbers.")
    if prod(axes) * kind.itemsize != len(data):
        raise DamagedError(f"{len(data):,} bytes for {kind} of the shape {axes}")
    return np.ndarray(axes, kind, buffer=data, order="F" if is_fortran else "C")


def bytes_in(value: Any) -> Any:
    """Bytes that protocol 2 of the format, which has none, wrote as a call on text; any other value as it is.

    Raises:
        DamagedError: the text has letters that are no bytes.
    """
    if not isinstance(value, Record) or str(value.made_by) != "_codecs.encode":
        return value
    match value.arguments:
        case (str() as text, "latin1" | "latin-1"):
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError as error:
                raise DamagedError(f"bytes with a letter that is none: {error}") from error
        case _:
            return value


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or len(shape) > MAX_AXES:
        raise DamagedError(f"its shape is no tuple of at most {MAX_AXES} lengths")
    if any(type(length) is not int or not 0 <= length < 1 << 62 for length in shape):
        raise DamagedError("its shape is made of something else than lengths")
    return shape


def _dtype(record: Any) -> np.dtype:
    if not isinstance(record, Record) or str(record.made_by) != "numpy.dtype" or not record.arguments:
        raise DamagedError("it has no dtype")
    code = record.arguments[0]
    if isinstance(code, Name) and code.module == "ml_dtypes":
        return dtype_of(code.name)
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        shown = ascii(code[:20]) if isinstance(code, str) else str(code) if isinstance(code, Name) else "without a code"
        raise UnsupportedLeafError(f"an array of dtype {shown}, which cannot be stored exactly. Use plain numbers.")
    state = record.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
    if order not in ("<", ">", "=", "|"):
        raise DamagedError("its dtype has no byte order")
    return np.dtype(f"{order}{code}")


def _parts(value: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) != count:
        raise DamagedError(f"it does not have the {count} parts")
    return value
