"""Modules of PyTorch taken apart for the walk."""

from typing import Any

from perdure.errors import UsageError
from perdure.interop.storage_ckpt.slots import Slot
from perdure.interop.storage_ckpt.walk import Field, refuse_layer

COUNTED = "num_batches_tracked"


class TorchLayers:
    """Linear layers and batch normalisation; every other module may have children, but no tensors."""

    def fields(self, node: Any, place: str) -> list[Field] | None:
        """See `Layers`."""
        own = own_tensors(node)
        if _is_batch_norm(node) and own.keys() <= _BATCH_NORM.keys():
            return [_field(own[name], *_BATCH_NORM[name], name) for name in _BATCH_NORM if name in own]
        if self.is_linear(node) and own.keys() <= {"weight", "bias"} and not any(node.children()):
            return [_field(own[name], "P", name, name) for name in ("weight", "bias") if name in own]
        if own:
            raise refuse_layer(node, place, list(own))
        return None if any(node.children()) else []

    def children(self, node: Any, place: str) -> list[tuple[str, Any]]:
        """See `Layers`: in the order of registration; one that stands at two places counts twice."""
        del place
        return [(name, child) for name, child in node._modules.items() if child is not None]

    def is_activation(self, node: Any) -> bool:
        """See `Layers`."""
        return type(node).__module__ == "torch.nn.modules.activation" and not own_tensors(node)

    def is_linear(self, node: Any) -> bool:
        """See `Layers`."""
        import torch

        return isinstance(node, torch.nn.Linear)


_BATCH_NORM = {
    "weight": ("P", "gamma"),
    "bias": ("P", "beta"),
    "running_mean": ("S", "running_mean"),
    "running_var": ("S", "running_var"),
    COUNTED: ("K", COUNTED),
}


def _is_batch_norm(node: Any) -> bool:
    import torch

    return isinstance(node, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d | torch.nn.SyncBatchNorm)


def own_tensors(node: Any) -> dict[str, Any]:
    """What the module itself holds: parameters, and buffers that belong to its state."""
    hidden = node._non_persistent_buffers_set
    tensors = {**node._parameters, **{name: each for name, each in node._buffers.items() if name not in hidden}}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _field(tensor: Any, kind: Any, name: str, own: str) -> Field:
    return Field(kind, name, own, tensor, shape_of(tensor, own), is_transposed=name == "weight" and tensor.dim() == 2)


def shape_of(tensor: Any, place: str) -> tuple[int, ...]:
    """The shape of a tensor that has values.

    Raises:
        UsageError: it has none yet (a lazy layer, the meta device), or is sparse.
    """
    import torch

    if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided:
        raise UsageError(
            f"{place}: a tensor without values of its own, or a sparse one. Make it dense, and call it once."
        )
    return tuple(tensor.shape)


def named_slots(module: Any) -> dict[str, Slot]:
    """Every tensor of the module's state by its own name, weights of linear layers turned as the format has them."""
    import torch

    turned = {id(node.weight) for node in module.modules() if isinstance(node, torch.nn.Linear)}
    slots = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"{name}: extra state that is no tensor has no place in the format. Keep it elsewhere.")
        kind = "P" if isinstance(tensor, torch.nn.Parameter) else "S" if tensor.is_floating_point() else "K"
        is_turned = id(tensor) in turned and tensor.dim() == 2
        slots[name] = Slot(kind, name, name, tensor, shape_of(tensor, name), is_turned)
    return slots
