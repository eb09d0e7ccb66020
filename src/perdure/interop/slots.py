"""The places of a live module that weights go into: their names, dtypes and shapes, and how each is written.

PyTorch's modules, NNX's modules, optimizers and states, and nested dicts. A framework is imported only if the module
is one of its own, so that it is loaded already.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.interop.carried import described_array
from perdure.interop.changes import Change, Copied, Setting
from perdure.tree.leaves import PLAIN_TYPES
from perdure.tree.paths import Path


@dataclass(frozen=True, eq=False)
class Slot:
    """One place."""

    names: tuple[str, ...]
    """Its names; several where a module has it in several places."""
    dtype: np.dtype | None
    """The dtype that fits; None of a plain value."""
    shape: tuple[int, ...]
    """The shape that fits."""
    made: Callable[[Any], Any]
    """From a fitting value what is put there; may fail, and changes nothing."""
    change: Callable[[Any], Change]
    """Of what was made: to put it there."""
    plain: type | None = None
    """The type of a plain value; None of an array."""
    trouble: str = ""
    """Why nothing can be put there, a sentence."""

    def described(self) -> str:
        """`float32 4×8`."""
        if self.dtype is not None:
            return described_array(self.dtype, self.shape)
        return f"a plain {self.plain.__name__ if self.plain else 'value'}"


@dataclass(frozen=True, eq=False)
class Slots:
    """All places of a module."""

    title: str
    """What the module is, with its article."""
    slots: Sequence[Slot]
    """The places, in the module's order."""
    notes: Sequence[str] = ()
    """What stays as it is, `PLACE: SENTENCE` each."""


def slots_of(module: object) -> Slots:
    """The places of a module.

    Raises:
        UsageError: it is of no kind that is known.
    """
    if "torch" in sys.modules:
        import torch

        if isinstance(module, torch.nn.Module):
            return _of_torch(module)
    if "flax" in sys.modules:
        from flax import nnx

        if isinstance(module, nnx.State):
            return Slots("the NNX state", list(_of_tree(module, ())))
        if isinstance(module, nnx.Pytree):
            return Slots("the NNX module", list(_of_nnx(module)))
    if isinstance(module, dict):
        return Slots("the dict", list(_of_tree(module, ())))
    known = "a PyTorch module, an NNX module, optimizer or state, and a nested dict of arrays"
    raise UsageError(f"{type(module).__name__}: weights can be loaded into {known}.")


def _of_torch(module: Any) -> Slots:
    import torch

    tied: dict[int, tuple[list[str], Any]] = {}
    notes = []
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            tied.setdefault(id(tensor), ([], tensor))[0].append(name)
        else:
            notes.append(f"{name}: what get_extra_state gives; it stays as it is.")
    return Slots("the PyTorch module", [_torch_slot(tuple(names), tensor) for names, tensor in tied.values()], notes)


def _torch_slot(names: tuple[str, ...], tensor: Any) -> Slot:
    from torch.nn.parameter import is_lazy

    from perdure.adapters.torch_dtypes import numpy_dtype, tensor_from

    dtype = numpy_dtype(tensor.dtype)
    shape = () if is_lazy(tensor) else tuple(tensor.shape)
    return Slot(
        names,
        dtype or np.dtype(np.uint8),
        shape,
        lambda value: tensor_from(np.array(value)).to(tensor.device),
        partial(Copied, tensor),
        trouble=_trouble_of_torch(tensor, dtype),
    )


def _trouble_of_torch(tensor: Any, dtype: np.dtype | None) -> str:
    """Why nothing can be copied into a tensor; after the first copy it would be too late to find out."""
    import torch
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor):
        return "has no shape yet in the module; run the module once on a batch."
    if tensor.is_meta:
        return "stands on the meta device, without memory; call module.to_empty(device=...) before."
    if dtype is None or tensor.layout != torch.strided:
        return f"a {tensor.dtype} tensor of the layout {tensor.layout} in the module, which nothing is loaded into."
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return "was made in inference mode; build the module outside of it, or load inside of it."
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return "has several elements in one place of memory (expand); give the module a clone of it."
    return ""


def _of_nnx(module: Any) -> Iterator[Slot]:
    from flax import nnx

    for path, node in nnx.iter_graph(module):
        if isinstance(node, nnx.Variable):
            yield _variable_slot(_name(path), node)


def _variable_slot(name: str, variable: Any) -> Slot:
    return _value_slot(name, variable.get_value(), partial(Setting, variable.get_value, variable.set_value))


def _of_tree(node: Any, path: Path) -> Iterator[Slot]:
    """Of a state, or of nested containers; what cannot be written in place is replaced in its container."""
    for step, child in enumerate(node) if isinstance(node, list | tuple) else node.items():
        here = (*path, step)
        if isinstance(child, Mapping | list | tuple):
            yield from _of_tree(child, here)
        elif hasattr(child, "get_value") and hasattr(child, "set_value"):
            yield _variable_slot(_name(here), child)
        elif isinstance(child, np.ndarray) and child.flags.writeable:
            yield Slot((_name(here),), child.dtype, child.shape, np.asarray, _written(child))
        else:
            can_replace = isinstance(node, MutableMapping | list)
            yield _value_slot(_name(here), child, _replaced(node, step) if can_replace else None)


def _written(target: np.ndarray) -> Callable[[Any], Change]:
    return partial(Setting, target.copy, partial(np.copyto, target))


def _replaced(owner: Any, step: Any) -> Callable[[Any], Change]:
    return partial(Setting, lambda: owner[step], partial(owner.__setitem__, step))


def _value_slot(name: str, value: Any, change: Callable[[Any], Change] | None) -> Slot:
    """Of a value that is replaced by another one."""
    if change is None:
        return _troubled(name, "stands in a tuple, in which nothing can be replaced; use a list or a dict.")
    if type(value) in PLAIN_TYPES:
        return Slot((name,), None, (), lambda plain: plain, change, plain=type(value))
    if isinstance(value, np.ndarray):
        return Slot((name,), value.dtype, value.shape, np.array, change)
    if isinstance(value, np.generic):
        return Slot((name,), value.dtype, (), lambda scalar: np.asarray(scalar)[()], change)
    if str(getattr(value, "dtype", ""))[:4] == "key<":
        return _key_slot(name, value, change)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return Slot(
            (name,), np.dtype(value.dtype), tuple(value.shape), lambda array: _on_devices_of(value, array), change
        )
    return _troubled(name, f"holds a {type(value).__name__} in the module; only arrays and plain values are loaded.")


def _troubled(name: str, why: str) -> Slot:
    return Slot(
        (name,),
        np.dtype(np.uint8),
        (),
        lambda value: value,
        partial(Setting, lambda: None, lambda _: None),
        trouble=why,
    )


def _key_slot(name: str, key: Any, change: Callable[[Any], Change]) -> Slot:
    import jax

    implementation = jax.random.key_impl(key)
    data = jax.eval_shape(jax.random.key_data, key)

    def made(value: Any) -> Any:
        return jax.random.wrap_key_data(jax.numpy.array(value), impl=implementation)

    return Slot((name,), np.dtype(data.dtype), tuple(data.shape), made, change)


def _on_devices_of(old: Any, value: Any) -> Any:
    """A JAX array with memory of its own, for a file's may be mapped; where somebody chose its devices, on those."""
    import jax

    array = jax.numpy.array(value)
    return jax.device_put(array, old.sharding) if getattr(old, "committed", False) else array


def _name(path: Sequence[Any]) -> str:
    return ".".join(map(str, path))
