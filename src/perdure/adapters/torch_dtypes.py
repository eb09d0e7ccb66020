"""PyTorch's dtypes as NumPy's, and the bits of a tensor as an array and back."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

import torch
from perdure.format.dtypes import dtype_of
from perdure.tree.leaves import Array, memory_axes

_NATIVE = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


class _Through(NamedTuple):
    """How the bits of a dtype that NumPy itself does not have pass to it: as integers of the same size."""

    torch_integer: torch.dtype
    numpy_integer: np.dtype
    dtype: np.dtype


_BYTES, _WORDS = (torch.uint8, np.dtype(np.uint8)), (torch.int16, np.dtype(np.int16))
_VIEWED = {
    torch.bfloat16: _Through(*_WORDS, dtype_of("bfloat16")),
    **{getattr(torch, name): _Through(*_BYTES, dtype_of(name)) for name in _FLOAT8 if hasattr(torch, name)},
}


@lru_cache(maxsize=64)
def numpy_dtype(dtype: torch.dtype) -> np.dtype | None:
    """The same dtype of NumPy or ml_dtypes; None if there is none (complex32, quantised, packed ones)."""
    name = str(dtype).removeprefix("torch.")
    return dtype_of(name) if name in _NATIVE or dtype in _VIEWED else None


@lru_cache(maxsize=64)
def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """The inverse of `numpy_dtype`."""
    return getattr(torch, dtype.name)


def array_of(tensor: torch.Tensor) -> Array:
    """The numbers of a strided tensor; borrowed if they are on the host, else copied to it."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    try:
        return Array(tensor.numpy())  # of hundreds of tensors, all but a few go this way
    except (RuntimeError, TypeError):  # on a device, conjugated, or of a dtype that NumPy does not have
        return _array_through_others(tensor)


def _array_through_others(tensor: torch.Tensor) -> Array:
    is_copy = not tensor.is_cpu
    host = tensor.cpu().resolve_conj().resolve_neg()
    viewed = _VIEWED.get(host.dtype)
    if viewed is None:
        return Array(host.numpy(), immutable=is_copy)
    return Array(host.view(viewed.torch_integer).numpy().view(viewed.dtype), immutable=is_copy)


def tensor_from(value: np.ndarray) -> torch.Tensor:
    """A tensor on the CPU with these numbers in this memory order; it adopts the array's memory if it may write."""
    dtype = torch_dtype(value.dtype)
    if not value.flags.writeable:
        value = value.copy(order="K")
    viewed = _VIEWED.get(dtype)
    if viewed is None:
        return torch.from_numpy(value)
    return torch.from_numpy(value.view(viewed.numpy_integer)).view(dtype)


def in_rows(array: Array) -> Array:
    """The same numbers in C order; a copy if they lay otherwise."""
    if memory_axes(array.value) == tuple(range(array.value.ndim)):
        return array
    return Array(np.ascontiguousarray(array.value), immutable=True)
