"""PyTorch's random number generators: `torch.Generator`, and the global ones of the CPU and of CUDA devices."""

from typing import Any

import numpy as np

import torch
from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.torch_dtypes import array_of, tensor_from
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree
from perdure.tree.paths import format_path


class Generator(ExactAdapter):
    """`torch.Generator`: its state as bytes, set on the host whatever device it draws for."""

    id = "torch-generator"
    kind: Kind = "live"
    is_rng = True
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The kind of device, which decides the algorithm, and the state (uint8), which PyTorch copies."""
        return {"device": obj.device.type, "state": array_of(obj.get_state())}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """A generator of the same kind of device."""
        if not isinstance(tree, dict) or tree.keys() != {"device", "state"}:
            return [walk.finding(summary(tree), "a torch.Generator", "Hand in a torch.Generator, as the run did.")]
        if tree["device"] != obj.device.type:
            advice = f"Make it with torch.Generator({tree['device']!r}): others draw other numbers."
            return [walk.finding(f"{tree['device']} generator", f"{obj.device.type} generator", advice)]
        return []

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the state in place."""
        obj.set_state(tensor_from(tree["state"].value.copy()))
        return obj


class GlobalsAdapter(ExactAdapter):
    """The generators behind the functions of `torch`: the CPU's, and those of the CUDA devices once CUDA is in use.

    Its object is a dict of the states that were restored without a generator for them: `cuda`, those of devices that
    this machine does not have.
    """

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """States as bytes (uint8): `cpu`, and `cuda`, one a device; None if nobody has seeded or drawn yet.

        Raises:
            CaptureError: this process is one of a distributed group.
        """
        refuse_groups(walk)
        here = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        cuda = [*map(array_of, here), *obj.get("cuda", [])]
        cpu = array_of(torch.get_rng_state())
        if not cuda and cpu.value.tobytes() == _untouched().tobytes():
            return None
        return {"cpu": cpu, **({"cuda": cuda} if cuda else {})}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """States of the right size."""
        states = _states(tree)
        size = torch.get_rng_state().numel()
        if states and all(map(_is_bytes, states)) and states[0].value.size == size:
            return []
        found = f"{size} bytes of PyTorch's CPU generator"
        return [walk.finding(summary(tree), found, "Use the PyTorch that wrote it.", "torch")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the states of the generators that are here, and keeps the others."""
        torch.set_rng_state(tensor_from(_untouched()) if tree is None else _tensor(tree["cpu"]))
        cuda = (tree or {}).get("cuda", [])
        here = torch.cuda.device_count() if cuda and torch.cuda.is_available() else 0
        if here:
            torch.cuda.init()  # else the states would wait until CUDA is used, and not be seen until then
        for device, state in enumerate(cuda[:here]):
            torch.cuda.set_rng_state(_tensor(state), device)
        obj["cuda"] = [Array(state.value.copy()) for state in cuda[here:]]
        return obj


def _untouched() -> np.ndarray:
    """The state that the CPU's generator has when PyTorch is imported: that of any new one."""
    return torch.Generator().get_state().numpy()


def _states(tree: Tree) -> list[Any]:
    if not isinstance(tree, dict) or "cpu" not in tree or tree.keys() - {"cpu", "cuda"}:
        return []
    cuda = tree.get("cuda", [])
    return [tree["cpu"], *cuda] if isinstance(cuda, list) else []


def _is_bytes(state: Any) -> bool:
    return isinstance(state, Array) and state.value.dtype == np.uint8


def _tensor(state: Array) -> torch.Tensor:
    """On the host, as all generators want it, in memory that nobody else holds."""
    return tensor_from(state.value.copy())


def refuse_groups(walk: Walk) -> None:
    """A run is one process.

    Raises:
        CaptureError: this process is one of several of a torch.distributed group.
    """
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    problem = (
        f"this process is one of {distributed.get_world_size()} of a torch.distributed group; a run is one process."
    )
    raise CaptureError(f"{format_path(walk.path)}: {problem}")
