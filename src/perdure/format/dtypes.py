"""The dtype table: NumPy dtypes, their names on disk, and the codes of the safetensors format."""

import re
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from perdure.errors import DamagedError, UnsupportedLeafError

SAFETENSORS_CODES = MappingProxyType(
    {
        "bool": "BOOL",
        "int8": "I8",
        "int16": "I16",
        "int32": "I32",
        "int64": "I64",
        "uint8": "U8",
        "uint16": "U16",
        "uint32": "U32",
        "uint64": "U64",
        "float16": "F16",
        "float32": "F32",
        "float64": "F64",
        "bfloat16": "BF16",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
        "complex64": "C64",
    }
)
"""Dtypes that safetensors has a code for. Every other dtype is stored as U8, its bytes as a last axis."""

_ML_DTYPES = frozenset(
    [
        "bfloat16",
        "int2",
        "int4",
        "uint2",
        "uint4",
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ]
)
_NATIVE_NAMES = (SAFETENSORS_CODES.keys() | {"complex128"}) - _ML_DTYPES
_NUMPY_CODES = re.compile(r"[<>|](?:[iufc]\d{1,2}|[US]\d{1,9}|[Mm]8(?:\[\d*[a-zA-Z]{1,2}\])?)")


@lru_cache(maxsize=256)
def name_of(dtype: np.dtype) -> str:
    """The dtype's name on disk.

    Raises:
        UnsupportedLeafError: for object, structured and extended-precision dtypes, which have no exact bytes of
            their own.
    """
    if dtype.name in _NATIVE_NAMES and dtype.isnative:
        return dtype.name
    if dtype.name in _ML_DTYPES and dtype == dtype_of(dtype.name):
        return dtype.name
    # Extended precision has undefined padding bytes: equal numbers would have unequal bytes.
    is_extended = dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)
    has_bytes = not dtype.hasobject and dtype.names is None and dtype.itemsize > 0
    if not has_bytes or is_extended or not _NUMPY_CODES.fullmatch(dtype.str):
        message = f"dtype {dtype} cannot be stored exactly. Split it into arrays of plain numbers."
        raise UnsupportedLeafError(message)
    return dtype.str


def dtype_of(name: str) -> np.dtype:
    """The dtype with this name on disk; the inverse of `name_of`.

    Raises:
        DamagedError: the name is none that `name_of` writes.
    """
    if name in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    if name in _NATIVE_NAMES or _NUMPY_CODES.fullmatch(name):
        try:
            dtype = np.dtype(name)
            if name_of(dtype) == name:
                return dtype
        except (TypeError, ValueError, UnsupportedLeafError) as error:
            raise DamagedError(f"unknown dtype {name!r}") from error
    raise DamagedError(f"unknown dtype {name!r}")


def safetensors_code(name: str) -> str:
    """The code that the tensor file's header bears for a dtype of this name."""
    return SAFETENSORS_CODES.get(name, "U8")
