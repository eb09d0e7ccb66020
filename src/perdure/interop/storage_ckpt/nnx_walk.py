"""Modules of Flax NNX taken apart for the walk."""

from typing import Any

from perdure.errors import UsageError
from perdure.interop.storage_ckpt.slots import Slot
from perdure.interop.storage_ckpt.walk import WAY_OUT, Field, refuse_layer

_LINEAR = {"kernel": ("P", "weight"), "bias": ("P", "bias")}
_BATCH_NORM = {
    "scale": ("P", "gamma"),
    "bias": ("P", "beta"),
    "mean": ("S", "running_mean"),
    "var": ("S", "running_var"),
}


class NnxLayers:
    """Linear layers and batch normalisation; every other module may have children, but no variables.

    Streams of random numbers (`nnx.Rngs`, those of a dropout) are no tensors of the format and are passed over.
    """

    def fields(self, node: Any, place: str) -> list[Field] | None:
        """See `Layers`."""
        from flax import nnx

        if not isinstance(node, nnx.Pytree | list | tuple):  # a function in a sequence: an activation
            return []
        own = own_variables(node)
        known = _BATCH_NORM if isinstance(node, nnx.BatchNorm) else _LINEAR if self.is_linear(node) else {}
        if known and own.keys() <= known.keys():
            return [_field(own[name], *known[name], name) for name in known if name in own]
        if own:
            raise refuse_layer(node, place, list(own))
        return None if _nodes(node) else []

    def children(self, node: Any, place: str) -> list[tuple[str, Any]]:
        """See `Layers`.

        Raises:
            UsageError: the attributes were set in an order that NNX does not keep (`nnx.merge` sorts them by name).
        """
        found = _nodes(node)
        names = [name for name, _ in found]
        if not _is_sequence(node) and names != sorted(names):
            where = place.rstrip("/") or "the module itself"
            problem = (
                f"{where}: its children are {', '.join(names)} now, and {', '.join(sorted(names))} after nnx.merge"
            )
            raise UsageError(f"{problem}, so that no order is sure. {WAY_OUT}")
        return found

    def is_activation(self, node: Any) -> bool:
        """See `Layers`."""
        from flax import nnx

        return callable(node) and not isinstance(node, nnx.Pytree)

    def is_linear(self, node: Any) -> bool:
        """See `Layers`."""
        from flax import nnx

        return isinstance(node, nnx.Linear)


def own_variables(node: Any) -> dict[str, Any]:
    """Variables and bare arrays that a node itself holds, streams of random numbers left out."""
    import jax
    import numpy as np
    from flax import nnx

    found = {}
    for name, value in _members(node):
        if isinstance(value, nnx.RngState) or (isinstance(value, nnx.Variable) and value.get_value() is None):
            continue
        if isinstance(value, nnx.Variable | jax.Array | np.ndarray):
            found[name] = value
    return found


def _nodes(node: Any) -> list[tuple[str, Any]]:
    """What counts as a child: modules and containers of them; in a sequence, functions too."""
    from flax import nnx

    if isinstance(node, nnx.Sequential):
        return [(f"layers/{at}", child) for at, child in enumerate(node.layers)]
    if _is_sequence(node):
        return _members(node)
    kinds = nnx.Module | nnx.List | nnx.Dict
    held = [(name, value) for name, value in _members(node) if not isinstance(value, nnx.Rngs | nnx.RngStream)]
    return [(name, value) for name, value in held if isinstance(value, kinds) or _holds_modules(value)]


def _holds_modules(value: Any) -> bool:
    from flax import nnx

    return isinstance(value, list | tuple) and any(isinstance(each, nnx.Module) for each in value)


def _is_sequence(node: Any) -> bool:
    from flax import nnx

    return isinstance(node, nnx.Sequential | nnx.List | list | tuple)


def _members(node: Any) -> list[tuple[str, Any]]:
    from flax import nnx

    if isinstance(node, nnx.List | list | tuple):
        return [(str(at), child) for at, child in enumerate(node)]
    return [(name, value) for name, value in vars(node).items() if not name.startswith("_pytree__")]


def _field(variable: Any, kind: Any, name: str, own: str) -> Field:
    return Field(kind, name, own, variable, tuple(variable.get_value().shape))


def paths_of(module: Any) -> dict[int, tuple[Any, ...]]:
    """The path of each variable, by its `id`, as NNX's states name it."""
    from flax import nnx

    return {id(node): tuple(path) for path, node in nnx.iter_graph(module) if isinstance(node, nnx.Variable)}


def named_slots(module: Any) -> dict[str, Slot]:
    """Every variable of the module by its path, `layers.0.kernel`; streams of random numbers left out."""
    from flax import nnx

    slots = {}
    for path, variable in nnx.iter_graph(module):
        if not isinstance(variable, nnx.Variable) or isinstance(variable, nnx.RngState) or variable.get_value() is None:
            continue
        name = ".".join(map(str, path))
        kind = "P" if isinstance(variable, nnx.Param) else "S"
        slots[name] = Slot(kind, name, name, variable, tuple(variable.get_value().shape))
    return slots
