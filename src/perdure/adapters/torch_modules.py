"""PyTorch's modules: parameters and buffers under the names of `state_dict`, and what `state_dict` leaves out.

The tree of a module is flat. `actor.0.weight` is an array, and bears in the tensor file the very name that
`load_state_dict` looks for. `actor.0` is a dict of what that submodule holds beside it: plain attributes, buffers that
are not persistent. The module's own stand under `.`, a name that no tensor can have.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import nn

from perdure.adapters.adapter import Kind
from perdure.adapters.containers import Children, Container
from perdure.adapters.torch_attributes import ByAttributes, is_data, note_class
from perdure.adapters.torch_dtypes import array_of, in_rows
from perdure.adapters.torch_random import refuse_groups
from perdure.adapters.torch_schedulers import Callable, opened
from perdure.adapters.torch_tensors import capture_tensor, copy_into
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding
from perdure.tree.leaves import PLAIN_TYPES, Array, Tree, memory_axes
from perdure.tree.paths import Step, format_path

ROOT = "."
FROZEN = ".frozen"
HOOKS = ".hooks"
EXTRA_STATE = "_extra_state"

_BOOKKEEPING = frozenset(vars(nn.Module())) - {"training"} | {
    "_compiled_call_impl",
    "_is_fsdp_managed_module",
    "_is_torch_compile",  # which `torch.compile` leaves on the module that it wraps
}
_DERIVED = frozenset({"_all_weights", "_flat_weight_refs", "_flat_weights", "_flat_weights_names"})
"""What recurrent layers know of their own parameters."""

_COMPUTED = ("_orig", "_g")
"""Ends of the parameters that the older spectral norm, pruning and weight norm make a tensor from."""

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

_WRAPPERS = {
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
}
"""Modules that change how another one runs, not what it is -> the attribute that holds it."""


class Part:
    """A module without its parameters, persistent buffers and submodules: what else it holds."""

    __slots__ = ("module",)

    def __init__(self, module: nn.Module) -> None:
        """Of `module`."""
        self.module = module


class PartAdapter(ByAttributes):
    """Plain attributes, tensors that are no buffers, buffers that are not persistent, hooks with state; what is frozen.

    Of a module that defines `get_extra_state`, only those that are data: it speaks for its other objects.
    """

    id = "torch-module-part"
    has_identity = False

    def subject(self, obj: Any) -> Any:
        """The module."""
        return obj.module

    def attributes(self, obj: Any) -> Children:
        """By name, sorted."""
        module = obj.module
        left_out = _BOOKKEEPING | _DERIVED if isinstance(module, nn.RNNBase) else _BOOKKEEPING
        found = {name: _own(module, name) for name in vars(module) if name not in left_out}
        if hooks := _hooks_with_state(module):
            found[HOOKS] = hooks
        if _has_extra_state(module):  # what else it holds is what it says there
            found = {name: value for name, value in found.items() if is_data(value)}
        for name in module._non_persistent_buffers_set:
            if module._buffers.get(name) is not None:
                found[name] = module._buffers[name]
        own = [(name, parameter) for name, parameter in module._parameters.items() if parameter is not None]
        if own:
            found[FROZEN] = ", ".join(sorted(name for name, parameter in own if not parameter.requires_grad))
        return dict(sorted(found.items()))

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute, a buffer, or what is frozen."""
        module = obj.module
        if name == FROZEN:
            for own, parameter in module._parameters.items():
                if parameter is not None:
                    parameter.requires_grad_(own not in value.split(", "))
        elif name in module._buffers:
            module._buffers[name] = value
        else:
            vars(module)[name] = value

    def remove(self, obj: Any, name: str) -> None:
        """Deletes an attribute that was not there before."""
        del vars(obj.module)[name]


def _own(module: nn.Module, name: str) -> Any:
    """An attribute; without its graph if a hook of PyTorch's computes it from a parameter before each forward pass."""
    value = vars(module)[name]
    is_computed = isinstance(value, torch.Tensor) and any(f"{name}{end}" in module._parameters for end in _COMPUTED)
    return value.detach() if is_computed else value


def _hooks_with_state(module: nn.Module) -> list[Callable]:
    """The callable objects of users' classes among its hooks: they may count or average."""
    hooks = [opened(hook) for kind in _HOOKS for hook in getattr(module, kind).values()]
    return [each for each in hooks if isinstance(each, Callable) and not _is_of_torch(each)]


def _is_of_torch(hook: Callable) -> bool:
    return type(hook.function).__module__.partition(".")[0] == "torch"


class Module(Container):
    """`nn.Module`: restored in place, tensor by tensor, through wrappers that only change how it runs."""

    id = "torch-module"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Parameters and buffers by their `state_dict` names, and a dict a submodule.

        Raises:
            CaptureError: a TorchScript module, a lazy one, or a process of a distributed group.
        """
        refuse_groups(walk)
        tree: dict[Step, Tree] = {}
        for name, child in _children(obj, walk).items():
            if isinstance(child, Part):
                tree[name] = _capture_part(child, name, walk)
            elif isinstance(child, torch.Tensor):
                leaf = capture_tensor(child, walk, name)
                tree[name] = _in_rows(leaf, name, walk) if isinstance(leaf, Array) else leaf
            else:
                tree[name] = walk.capture(child, name)
        return tree

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same parameters, buffers and submodules."""
        return self.check_children(_children(obj, walk), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Writes into the storage that parameters and buffers have; extra state goes to `set_extra_state`, last."""
        children = _children(obj, walk)
        restored = self.restore_children(children, tree, walk)
        for prefix, module in _modules(obj, walk):
            for name, buffer in module._buffers.items():
                value = restored.get(_step(prefix + name), buffer)
                if value is not buffer and name not in module._non_persistent_buffers_set:
                    _refill(module, name, value)
        for prefix, module in _modules(obj, walk):
            if _has_extra_state(module):
                module.set_extra_state(restored[_step(prefix + EXTRA_STATE)])
        return obj


def _capture_part(part: Part, name: Step, walk: Walk) -> Tree:
    """The tree of a part; that of a layer, which holds nothing but plain values, the short way."""
    attributes = PartAdapter().attributes(part)
    if not all(type(value) in PLAIN_TYPES for value in attributes.values()):
        return walk.capture(part, name)
    note_class(part.module, walk, name)
    for attribute, value in attributes.items():
        walk.settings[(*walk.path, name, attribute)] = value
    return attributes


def _in_rows(leaf: Array, name: Step, walk: Walk) -> Array:
    """In C order, whatever the layout, so that any reader of the file finds the shape; the layout is a fact."""
    axes = memory_axes(leaf.value)
    if axes != tuple(range(leaf.value.ndim)):
        walk.fact(f"memory order {axes}", name)
    return in_rows(leaf)


def _refill(module: nn.Module, name: str, value: Any) -> None:
    """Writes a buffer that lies in another memory order than the saved numbers; a sparse one is replaced."""
    buffer = module._buffers[name]
    if buffer is None or buffer.layout is not torch.strided:
        module._buffers[name] = value
    else:
        copy_into(buffer, array_of(value).value)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile` and data-parallel wrappers, so that no name bears their prefix."""
    while (held := _held_by(type(module))) is not None:
        module = getattr(module, held)
    return module


@lru_cache(maxsize=1024)
def _held_by(kind: type) -> str | None:
    return _WRAPPERS.get(f"{kind.__module__}.{kind.__qualname__}")


def _children(obj: nn.Module, walk: Walk) -> Children:
    """Tensors, then extra states and parts, by name: an optimizer among the attributes refers to the tensors."""
    found: Children = {}
    parts: Children = {}
    for prefix, module in _modules(obj, walk):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found[_step(prefix + name)] = parameter
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                found[_step(prefix + name)] = buffer
        if _has_extra_state(module):
            parts[_step(prefix + EXTRA_STATE)] = module.get_extra_state()
        parts[_step(prefix.removesuffix(".") or ROOT)] = Part(module)
    return {**found, **parts}


def _modules(obj: nn.Module, walk: Walk, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Every module with the prefix of its tensors' names; one that stands at two places, twice, as in `state_dict`."""
    module = unwrapped(obj)
    if isinstance(module, torch.jit.ScriptModule):
        problem = "a TorchScript module keeps its state where perdure does not look. Hand in the module it was made of."
        raise CaptureError(f"{format_path((*walk.path, *filter(None, [prefix.removesuffix('.')])))}: {problem}")
    found = [(prefix, module)]
    for name, child in module._modules.items():
        if child is not None:
            found += _modules(child, walk, f"{prefix}{name}.")
    return found


def _has_extra_state(module: nn.Module) -> bool:
    return type(module).get_extra_state is not nn.Module.get_extra_state


def _step(name: str) -> Step:
    """Items of a `ParameterList` or a `Sequential` are positions, and need no quotes in the file."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name
