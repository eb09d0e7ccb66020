"""PyTorch's tensors and parameters, and the constants that describe them."""

from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from perdure.adapters.adapter import Adapter, ExactAdapter, Kind
from perdure.adapters.numpy_arrays import check_array, share_elements
from perdure.adapters.torch_dtypes import array_of, numpy_dtype, tensor_from
from perdure.adapters.torch_sparse import SPARSE, check_sparse, sparse_from, sparse_tree
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, UnsupportedLeafError
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree, memory_axes
from perdure.tree.paths import Step, format_path

_PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)


class Tensor(ExactAdapter):
    """Tensors: a value comes back as a new tensor on the target's device; part of a live object, in its own storage.

    A leaf that wants gradients is a parameter, whoever holds it: an optimizer knows it by identity.
    """

    id = "torch-tensor"
    has_identity = True

    def variant(self, obj: Any) -> Adapter:
        """The adapter for this very tensor."""
        return _PARAMETER if obj.requires_grad and obj.is_leaf else self

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The numbers, borrowed if they are on the host.

        Raises:
            CaptureError: a tensor without numbers of its own, of a class that holds more, or with a graph behind it.
            UnsupportedLeafError: a dtype or layout without an exact form.
        """
        refuse_unlike(obj, walk)
        if obj.requires_grad and not obj.is_leaf:
            way_out = (
                "Detach it, or set it to None, before the boundary" if walk.inside_live else "Hand in tensor.detach()"
            )
            problem = f"the tensor has a graph behind it, which no checkpoint holds. {way_out}."
            raise CaptureError(f"{format_path(walk.path)}: {problem}")
        return sparse_tree(obj) if obj.layout in SPARSE else array_of(obj)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Dtype, shape and layout must be the same; the device may be another."""
        refuse_unlike(obj, walk)
        if obj.layout in SPARSE or isinstance(tree, dict):
            return check_sparse(obj, tree, walk)
        return check_tensor(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target itself with the saved numbers if it is part of a live object, else a new tensor."""
        if isinstance(tree, dict):
            return sparse_from(tree).to(obj.device)
        if walk.inside_live and has_place_for(tree.value, obj):
            return _written(obj, tree.value, walk)
        return tensor_from(tree.value).to(obj.device)


class Parameter(Tensor):
    """Parameters, and leaf tensors that want gradients (SAC's log_alpha): always restored in place."""

    id = "torch-parameter"
    kind: Kind = "live"

    def variant(self, obj: Any) -> Adapter:
        """This one."""
        return self

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The numbers.

        Raises:
            CaptureError, UnsupportedLeafError: as for other tensors; a sparse one cannot be written in place either.
        """
        if obj.layout in SPARSE:
            problem = "a sparse parameter cannot be restored in its own storage; use a dense one."
            raise UnsupportedLeafError(f"{format_path(walk.path)}: {problem}")
        return super().capture(obj, walk)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Dtype and shape must be the same."""
        return check_tensor(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Writes the saved numbers into the parameter's own storage."""
        _is_written_already(obj, walk)
        return copy_into(obj, tree.value)


_PARAMETER = Parameter()


class Constant(ExactAdapter):
    """Dtypes, layouts and memory formats: facts. Devices: neither facts nor state, for a run may move."""

    id = "torch-constant"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """No state; the name is a fact, but that of a device."""
        if not isinstance(obj, torch.device):
            walk.fact(str(obj))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else than a constant was saved here."""
        return [] if tree is None else [walk.finding(summary(tree), str(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj


class Size(ExactAdapter):
    """`torch.Size`: a tuple of integers."""

    id = "torch-size"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The tuple."""
        return tuple(obj)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Another tuple of integers is fine."""
        if isinstance(tree, tuple) and all(type(part) is int for part in tree):
            return []
        return [walk.finding(summary(tree), str(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved size."""
        return torch.Size(tree)


def capture_tensor(obj: torch.Tensor, walk: Walk, *below: Step) -> Tree:
    """The tree of a tensor that a live object holds at the steps `below`; dense ones take the short way."""
    if is_dense(obj):
        return walk.meet(obj, *below) or array_of(obj)
    return walk.capture_below(obj, *below)


def is_dense(obj: Any) -> bool:
    """Whether an object is nothing but a block of numbers that NumPy has a dtype for."""
    if type(obj) not in _PLAIN_CLASSES or obj.layout is not torch.strided:
        return False
    return not obj.is_meta and numpy_dtype(obj.dtype) is not None


def refuse_unlike(obj: Any, walk: Walk) -> None:
    """Refuses tensors that are more, or less, than a block of numbers.

    Raises:
        CaptureError: lazy, on `meta`, or of another class than torch's own.
        UnsupportedLeafError: quantised, nested, or with a dtype that has no exact form.
    """
    if is_dense(obj):
        return
    place = format_path(walk.path)
    if is_lazy(obj):
        problem = "is not initialised yet. Run one forward pass, or build the module with its sizes, before `restore`."
        raise CaptureError(f"{place}: the lazy tensor {problem}")
    if type(obj) not in _PLAIN_CLASSES:
        problem = (
            f"a {type(obj).__qualname__} may hold more than numbers. Hand in a torch.Tensor, or an adapter for it."
        )
        raise CaptureError(f"{place}: {problem}")
    if obj.is_meta:
        raise CaptureError(f"{place}: a tensor on the device meta has no numbers; move it to a real device first.")
    if obj.is_quantized or obj.is_nested or numpy_dtype(obj.dtype) is None or obj.layout not in SPARSE:
        kind = f"{str(obj.dtype).removeprefix('torch.')} tensor of layout {str(obj.layout).removeprefix('torch.')}"
        raise UnsupportedLeafError(f"{place}: a {kind} cannot be stored exactly; use plain numbers.")


def check_tensor(obj: torch.Tensor, tree: Tree, walk: Walk) -> list[Finding]:
    """The finding for a tensor of another dtype or shape than the saved one."""
    dtype = numpy_dtype(obj.dtype)
    assert dtype is not None  # noqa: S101 - others were refused
    return check_array(dtype, tuple(obj.shape), tree, walk)


def copy_into(target: torch.Tensor, value: np.ndarray) -> torch.Tensor:
    """The target, with other numbers in the storage that it has: graphs and optimizers go on pointing to it."""
    once = tuple(slice(1) if stride == 0 else slice(None) for stride in target.stride())  # where it is expanded
    with torch.no_grad():
        target[once].copy_(tensor_from(value)[once])
    return target


def _written(target: torch.Tensor, value: np.ndarray, walk: Walk) -> torch.Tensor:
    """The target with other numbers; a tensor of its own where this restore has put others into its memory.

    A fresh `spectral_norm` of the older kind shows its parameter's own memory as the weight, a used one does not.
    """
    if not _is_written_already(target, walk):
        return copy_into(target, value)
    is_same = array_of(target).value.tobytes() == value.tobytes()
    return target if is_same else tensor_from(value).to(target.device)


def _is_written_already(target: torch.Tensor, walk: Walk) -> bool:
    """Whether the restore has written to elements of this tensor at another place; notes that it does now."""
    if not target.is_cpu:
        return False
    array = array_of(target).value
    met = walk.memory.setdefault(target.untyped_storage().data_ptr(), [])
    is_written = any(share_elements(array, other) for _, other in met)
    met.append((walk.path, array))
    return is_written


def has_place_for(value: np.ndarray, target: torch.Tensor) -> bool:
    """Whether the numbers can be copied into the target and lie in memory as they were saved."""
    if target.layout is not torch.strided or target.is_inference() or tuple(target.shape) != value.shape:
        return False
    if numpy_dtype(target.dtype) != value.dtype:
        return False
    return memory_axes(array_of(target).value) == memory_axes(value)


def rebuild(tree: Tree, walk: Walk) -> torch.Tensor:
    """A tensor without a target, on the CPU."""
    return tensor_from(tree.value) if isinstance(tree, Array) else sparse_from(tree)


def rebuild_size(tree: Tree, walk: Walk) -> torch.Size:
    """A size without a target."""
    return torch.Size(tree)
