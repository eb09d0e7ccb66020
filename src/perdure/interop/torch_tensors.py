"""Tensors in a pickle of PyTorch: taken apart by hand, and every number in them checked against their storage.

The table names the functions that torch 0.4 to 2.13 put into pickles (`torch/_utils.py`, `torch/_tensor.py`).
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from perdure.errors import DamagedError
from perdure.interop.pickled_values import Name, PersistentId, Record
from perdure.interop.torch_archives import TorchArchive
from perdure.interop.torch_dtypes import dtype_named, dtype_of_storage

MAX_AXES = 64
"""The most axes of an array of NumPy, and of a tensor."""

MAX_ELEMENTS = 1 << 58
"""NumPy counts bytes in 63 bits, even of arrays without any."""

UNREAD = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_sparse_csr_tensor": "a sparse tensor",
    "torch._utils._rebuild_qtensor": "a quantised tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor without data",
    "torch._utils._rebuild_wrapper_subclass": "a tensor of a class of its own",
}
"""Tensors that are no plain array."""

_STRIDED = frozenset({"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"})
_PARAMETERS = frozenset({"_rebuild_parameter", "_rebuild_parameter_with_state"})


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor as the pickle describes it; its storage was not looked at."""

    dtype: np.dtype
    """Of its elements."""
    shape: tuple[int, ...]
    """Length of each axis."""
    strides: tuple[int, ...]
    """Elements from one to the next along each axis."""
    offset: int
    """Elements of the storage before its first one."""
    storage: str
    """The storage's key."""
    notes: tuple[str, ...] = ()
    """What of it an array does not hold, a sentence each."""
    conjugated: bool = False
    """Whether it stands for the complex conjugates of what the storage holds."""
    negated: bool = False
    """Whether it stands for the negatives of what the storage holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array that it becomes."""
        return prod(self.shape) * self.dtype.itemsize


class NotReadError(ValueError):
    """It is no damage, but no plain array either; the message says what it is."""


def tensor_in(record: Record, archive: TorchArchive) -> Tensor | None:
    """The tensor that a record stands for; None if it stands for something else.

    Raises:
        DamagedError: it goes beyond its storage, the storage is missing, or a part is none that torch writes.
        NotReadError: it is sparse, quantised, or of numbers that NumPy does not have.
    """
    name = str(record.made_by).replace("torch.tensor.", "torch._tensor.", 1)
    if name in UNREAD:
        raise NotReadError(UNREAD[name])
    module, _, function = name.rpartition(".")
    if module == "torch._utils" and function in _STRIDED:
        return _checked(_strided(record.arguments, function), archive)
    if module == "torch._utils" and function in _PARAMETERS:
        return _parameter(record.arguments, archive)
    if name == "torch._tensor._rebuild_from_type_v2":
        return _of_class(record.arguments, archive)
    return None


def storage_in(each: PersistentId, archive: TorchArchive) -> Tensor:
    """A storage that stands alone, as a tensor of one axis.

    Raises:
        DamagedError: as `tensor_in`.
    """
    dtype, key = _storage(each)
    size = archive.sizes.get(key, 0) // dtype.itemsize
    note = "a storage, not a tensor; it became an array of one axis."
    return _checked((Tensor(dtype, (size,), (1,), 0, key, (note,)), each), archive)


def array_of(tensor: Tensor, archive: TorchArchive) -> np.ndarray:
    """Its numbers: a read-only view of the file's bytes, or new memory where bytes or signs must be turned."""
    if prod(tensor.shape) == 0:
        return np.empty(tensor.shape, tensor.dtype)
    data = archive.read(tensor.storage)
    strides = [step * tensor.dtype.itemsize for step in tensor.strides]
    array = np.ndarray(tensor.shape, tensor.dtype, data, tensor.offset * tensor.dtype.itemsize, strides)
    if archive.is_big_endian and tensor.dtype.kind == "c":
        array = array.byteswap()
    elif archive.is_big_endian:
        array = array.view(f"u{tensor.dtype.itemsize}").byteswap().view(tensor.dtype)
    if tensor.conjugated:
        array = np.asarray(np.conj(array))
    if tensor.negated:
        array = np.asarray(np.negative(array))
    array.flags.writeable = False
    return array


def _strided(arguments: tuple[Any, ...], function: str) -> tuple[Tensor, Any]:
    """From `storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata]`, and the storage."""
    if len(arguments) < 4 or not isinstance(arguments[0], PersistentId):
        raise DamagedError("a tensor without the storage, offset, size and stride that torch writes")
    dtype, key = _storage(arguments[0])
    if arguments[0].value[1].name.startswith("Q"):
        raise NotReadError("a quantised tensor")
    offset, shape, strides = arguments[1], _lengths(arguments[2]), _lengths(arguments[3])
    has_dtype = function == "_rebuild_tensor_v3"
    if has_dtype:
        dtype = _dtype_argument(arguments)
    metadata = arguments[6 + has_dtype] if len(arguments) > 6 + has_dtype else None
    signs = metadata if isinstance(metadata, dict) else {}
    notes = () if arguments[4:5] != (True,) else ("that it requires gradients is not kept.",)
    is_turned = (signs.get("conj") is True, signs.get("neg") is True)
    return Tensor(dtype, shape, strides, _length(offset), key, notes, *is_turned), arguments[0]


def _dtype_argument(arguments: tuple[Any, ...]) -> np.dtype:
    name = arguments[6] if len(arguments) > 6 else None
    if not isinstance(name, Name) or name.module != "torch":
        raise DamagedError("a tensor without the dtype that torch writes")
    dtype = dtype_named(name)
    if dtype is None:
        raise NotReadError(f"a tensor of {name}, which NumPy does not have")
    return dtype


def _storage(each: PersistentId) -> tuple[np.dtype, str]:
    """The dtype and the key that a persistent id names."""
    match each.value:
        case ("storage", Name() as kind, str() as key, str(), int()):
            return dtype_of_storage(kind, "a tensor"), key
        case ("storage", Name() as kind, str() as key, str(), int(), None):
            return dtype_of_storage(kind, "a tensor"), key
        case ("storage", Name(), str() as key, str(), int(), _):
            raise NotReadError(f"a view into storage {key!a}, as torch before 0.4 wrote them")
        case _:
            raise DamagedError("a persistent id that names no storage as torch does")


def _checked(found: tuple[Tensor, Any], archive: TorchArchive) -> Tensor:
    """The tensor, if all of it is in its storage, and its storage is as long as the pickle says."""
    tensor, each = found
    if tensor.storage not in archive.sizes:
        raise DamagedError(f"storage {tensor.storage!a} is not in the file")
    stored, count = archive.sizes[tensor.storage], _length(each.value[4])
    item = dtype_of_storage(each.value[1], "a tensor").itemsize
    if not 0 <= stored - count * item < item:
        raise DamagedError(f"storage {tensor.storage!a} has {stored:,} bytes, not {count:,} elements of {item}")
    if prod(max(size, 1) for size in tensor.shape) >= MAX_ELEMENTS:
        raise DamagedError(f"the shape {tensor.shape}, which no memory holds")
    if len(tensor.shape) != len(tensor.strides) or len(tensor.shape) > MAX_AXES:
        raise DamagedError(f"{len(tensor.shape)} axes with {len(tensor.strides)} strides, at most {MAX_AXES}")
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    if prod(tensor.shape) and last >= stored // tensor.dtype.itemsize:
        raise DamagedError(
            f"its last element is number {last:,} of storage {tensor.storage!a}, which has "
            f"{stored // tensor.dtype.itemsize:,} of {tensor.dtype}"
        )
    return tensor


def _parameter(arguments: tuple[Any, ...], archive: TorchArchive) -> Tensor:
    data = arguments[0] if arguments else None
    tensor = tensor_in(data, archive) if isinstance(data, Record) else None
    if tensor is None:
        raise DamagedError("a parameter without a tensor")
    notes = () if arguments[1:2] != (True,) else ("that it requires gradients is not kept.",)
    state = () if len(arguments) < 4 or not arguments[3] else ("attributes of the parameter are not kept.",)
    return replace(tensor, notes=(*tensor.notes, *notes, *state))


def _of_class(arguments: tuple[Any, ...], archive: TorchArchive) -> Tensor:
    """A tensor with a class or attributes of its own: `function, class, arguments, state`."""
    match arguments:
        case (Name() as function, Name() as kind, tuple() as parts, _):
            tensor = tensor_in(Record(function, parts, is_class=False), archive)
        case _:
            tensor, kind = None, None
    if tensor is None:
        raise NotReadError(f"a tensor of the class {kind}")
    return replace(tensor, notes=(*tensor.notes, f"its class {kind} and its attributes are not kept."))


def _lengths(value: Any) -> tuple[int, ...]:
    """Of a tuple, or of a `torch.Size`, which was a call on one."""
    if isinstance(value, Record) and str(value.made_by) == "torch.Size" and len(value.arguments) == 1:
        value = value.arguments[0]
    if not isinstance(value, tuple):
        raise DamagedError(f"a {type(value).__name__} where sizes or strides belong")
    return tuple(map(_length, value))


def _length(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        shown = value if isinstance(value, int) else f"a {type(value).__name__}"
        raise DamagedError(f"{shown} where a size, a stride or an offset belongs")
    return value


def lengths_in(value: Any, place: str) -> tuple[int, ...]:
    """The lengths in a `torch.Size` or a tuple, with the place of what is wrong.

    Raises:
        DamagedError: it is none.
    """
    try:
        return _lengths(value)
    except DamagedError as error:
        raise DamagedError(f"{place}: {error}. Take an undamaged copy of the file.") from error
