"""The walk of a module: which tensors it has, in which order, under which names.

Names are made of child indices and a field: the second linear layer of a module of three children is `2.weight` if an
activation stands between them, for an activation takes an index too. noeira also has layers that apply their activation
themselves; a module whose activations stand for such ones is walked as `fused`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.contract.naming import name_of
from perdure.errors import UsageError
from perdure.interop.storage_ckpt.slots import Names, Side, Slot, SlotKind

WAY_OUT = "Give `walk`: the names of the module's own tensors in the file's order."


@dataclass(frozen=True, eq=False)
class Field:
    """A tensor of a layer."""

    kind: SlotKind
    name: str
    """In the format."""
    own: str
    """In the layer."""
    tensor: Any
    shape: tuple[int, ...]
    is_transposed: bool = False


class Layers(Protocol):
    """How the modules of a framework are taken apart."""

    def fields(self, node: Any, place: str) -> list[Field] | None:
        """The tensors of a layer that is known, none of one without tensors; None if the node only has children.

        Raises:
            UsageError: the node has tensors, and the format has no names for them.
        """
        ...

    def children(self, node: Any, place: str) -> list[tuple[str, Any]]:
        """The children in the order in which they count, each by its name in the node."""
        ...

    def is_activation(self, node: Any) -> bool:
        """Whether a linear layer could apply it itself."""
        ...

    def is_linear(self, node: Any) -> bool:
        """Whether it is a linear layer."""
        ...


def slots_of(module: Any, layers: Layers, *, fused: bool) -> list[Slot]:
    """The tensors of a module by child index and field: parameters, then states, then counts."""
    found = list(_visit(module, layers, "", "", fused=fused))
    return [slot for kind in ("P", "S", "K") for slot in found if slot.kind == kind]


def _visit(node: Any, layers: Layers, name: str, place: str, *, fused: bool) -> Iterator[Slot]:
    fields = layers.fields(node, place)
    if fields is not None:
        for field in fields:
            yield Slot(field.kind, name + field.name, place + field.own, field.tensor, field.shape, field.is_transposed)
        return
    index, previous = 0, None
    for step, child in layers.children(node, place):
        if not (fused and layers.is_activation(child) and previous is not None and layers.is_linear(previous)):
            yield from _visit(child, layers, f"{name}{index}.", f"{place}{step}/", fused=fused)
            index += 1
        previous = child


def slots_by_name(names: Names, own: Mapping[str, Slot]) -> list[Slot]:
    """The tensors in a user's order, under a user's names; counts keep their own.

    Args:
        names: the user's walk.
        own: every tensor of the module by its own name.

    Raises:
        UsageError: a name is none of the module's, stands there twice, or a tensor is left out.
    """
    pairs = list(names.items()) if isinstance(names, Mapping) else [(name, name) for name in names]
    unknown = [there for _, there in pairs if there not in own]
    given = [there for _, there in pairs]
    twice = sorted({there for there in given if given.count(there) > 1})
    left_out = [name for name, slot in own.items() if name not in given and slot.kind != "K"]
    for problem, which in (("no tensor of the module", unknown), ("named twice", twice), ("left out", left_out)):
        if which:
            known = ", ".join(own)
            raise UsageError(f"walk: {problem}: {', '.join(which)}. Name each tensor of the module once: {known}.")
    chosen = [
        Slot(own[there].kind, name, there, own[there].tensor, own[there].shape, own[there].is_transposed)
        for name, there in pairs
    ]
    counts = [slot for name, slot in own.items() if slot.kind == "K" and name not in given]
    return [slot for kind in ("P", "S", "K") for slot in [*chosen, *counts] if slot.kind == kind]


def refuse_layer(node: Any, place: str, tensors: Sequence[str]) -> UsageError:
    """The error for a layer whose tensors have no names in the format."""
    where = place.rstrip("/") or "the module itself"
    kinds = "The names of linear layers and batch normalisation are known"
    problem = f"{where}: {name_of(type(node))} holds {', '.join(tensors)}, for which the format has no names"
    return UsageError(f"{problem}. {kinds}. {WAY_OUT}")


def side_of(module: Any) -> Side:
    """The framework of a module, by what it is; nothing is imported that the module's owner did not import.

    Raises:
        UsageError: it is neither a module of PyTorch nor one of Flax NNX.
    """
    torch, flax = sys.modules.get("torch"), sys.modules.get("flax")
    if torch is not None and isinstance(module, torch.nn.Module):
        from perdure.interop.storage_ckpt.torch_side import TorchSide

        return TorchSide()
    nnx = getattr(flax, "nnx", None)
    if nnx is not None and isinstance(module, nnx.Pytree):
        from perdure.interop.storage_ckpt.nnx_side import NnxSide

        return NnxSide()
    found = name_of(type(module))
    raise UsageError(f"{found}: neither a torch.nn.Module nor a flax.nnx.Module. Use `write` for sections of your own.")
