"""Which networks and optimizers do nothing but what their classes say, so that their arithmetic may be done by hand.

Whoever subclasses a layer, parametrises a weight, hooks into a module or casts it means something by it, which code
that only reads the weights would leave out in silence. Whatever is not known here is left to PyTorch.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_stock(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of that very class, without hooks, methods of its own, or a compiled form."""
    held = vars(module)
    has_hooks = any(held[name] for name in _HOOKS) or any(getattr(modules, f"_global{name}") for name in _HOOKS)
    overrides = any(callable(getattr(kind, name, None)) for name in held)
    return type(module) is kind and not (has_hooks or overrides or held.get("_compiled_call_impl"))


def is_stock_linear(layer: nn.Module) -> bool:
    """Whether a layer is `nn.Linear` with a bias, in 32-bit floats in this process's memory."""
    return (
        is_stock(layer, nn.Linear)
        and layer._parameters.keys() == {"weight", "bias"}
        and all(map(is_stock_parameter, layer._parameters.values()))
        and not (layer._buffers or layer._modules)
    )


def is_stock_parameter(parameter: Tensor | None) -> bool:
    """Whether a parameter is dense, of 32-bit floats, on the processor, trained, and without hooks."""
    return (
        isinstance(parameter, nn.Parameter)
        and type(parameter) is nn.Parameter
        and parameter.dtype == torch.float32
        and parameter.device.type == "cpu"
        and parameter.layout == torch.strided
        and parameter.requires_grad
        and not parameter._backward_hooks
        and not getattr(parameter, "_post_accumulate_grad_hooks", None)
    )


def is_stock_adam(optimizer: torch.optim.Optimizer, networks: nn.Module) -> bool:
    """Whether an optimizer is Adam of just these parameters, in its plain form, and has made a step."""
    if type(optimizer) is not torch.optim.Adam or len(optimizer.param_groups) != 1:
        return False
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    group, own = optimizer.param_groups[0], list(networks.parameters())
    return (
        not any(hooks)
        and "step" not in vars(optimizer)
        and [id(each) for each in group["params"]] == [id(each) for each in own]
        and all(each in optimizer.state for each in own)
        and isinstance(group["lr"], float)
        and not any(group.get(name) for name in ("amsgrad", "maximize", "capturable", "differentiable"))
        and not group.get("decoupled_weight_decay")
    )
