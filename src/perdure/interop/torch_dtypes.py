"""PyTorch's dtypes and kinds of storages, by name, and the NumPy dtypes that hold the same numbers."""

from types import MappingProxyType

import numpy as np

from perdure.errors import DamagedError
from perdure.format.dtypes import dtype_of
from perdure.interop.pickled_values import Name

DTYPES = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
    | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
"""Names that PyTorch and NumPy (with ml_dtypes) have for the same numbers."""

_STORAGES = MappingProxyType(
    {
        "BoolStorage": "bool",
        "CharStorage": "int8",
        "ShortStorage": "int16",
        "IntStorage": "int32",
        "LongStorage": "int64",
        "ByteStorage": "uint8",
        "UntypedStorage": "uint8",
        "HalfStorage": "float16",
        "BFloat16Storage": "bfloat16",
        "FloatStorage": "float32",
        "DoubleStorage": "float64",
        "ComplexFloatStorage": "complex64",
        "ComplexDoubleStorage": "complex128",
        "QInt8Storage": "int8",
        "QUInt8Storage": "uint8",
        "QInt32Storage": "int32",
        "QUInt4x2Storage": "uint8",
        "QUInt2x4Storage": "uint8",
    }
)


def dtype_of_storage(name: Name, place: str) -> np.dtype:
    """The dtype of a storage's elements; those of quantised ones as plain integers.

    Raises:
        DamagedError: PyTorch has no such storage.
    """
    if name.module.split(".")[0] != "torch" or name.name not in _STORAGES:
        raise DamagedError(f"{place}: {name} is no storage of PyTorch. Take an undamaged copy of the file.")
    return dtype_of(_STORAGES[name.name])


def dtype_named(name: Name) -> np.dtype | None:
    """The dtype that `torch.float32` and its like stand for; None if NumPy has none of the same numbers."""
    return dtype_of(name.name) if name.module == "torch" and name.name in DTYPES else None
