"""What PyTorch does for the format: values of tensors, and Adam's moments and steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from perdure.contract.naming import name_of
from perdure.errors import UsageError
from perdure.interop.changes import Change, Copied, Setting
from perdure.interop.storage_ckpt.slots import Adam, Names, NewAdam, Slot
from perdure.interop.storage_ckpt.torch_walk import TorchLayers, named_slots
from perdure.interop.storage_ckpt.walk import slots_by_name, slots_of

_ENTRY = {"step", "exp_avg", "exp_avg_sq"}
_WITHOUT = "Save without it (save_moments=False), or keep the optimizer in a checkpoint of perdure's."


class TorchSide:
    """See `Side`."""

    shares_optimizers = True

    def slots(self, module: Any, names: Names | None, *, fused: bool) -> list[Slot]:
        """See `Side`; of a compiled module, those of the module that was compiled."""
        module = getattr(module, "_orig_mod", module)
        return (
            slots_of(module, TorchLayers(), fused=fused) if names is None else slots_by_name(names, named_slots(module))
        )

    def dtype_of(self, tensor: Any) -> str:
        """See `Side`."""
        return str(tensor.dtype).removeprefix("torch.")

    def host(self, tensor: Any) -> np.ndarray:
        """See `Side`."""
        import torch

        tensor = tensor.detach()
        return (tensor.to(torch.float32) if tensor.is_floating_point() else tensor).cpu().numpy()

    def change(self, slot: Slot, tensor: Any, array: np.ndarray) -> Change:
        """See `Side`."""
        return Copied(tensor, _staged(slot, tensor, array))

    def check_covered(self, optimizer: Any, slots: Sequence[Slot]) -> None:
        """See `Side`."""
        import torch

        if not isinstance(optimizer, torch.optim.Adam):  # AdamW is one
            raise UsageError(f"{name_of(type(optimizer))}: the format has a place for Adam's moments only. {_WITHOUT}")
        ours = {id(slot.tensor) for slot in slots}
        theirs = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if any(group.get("amsgrad") for group in optimizer.param_groups):
            raise UsageError(f"amsgrad keeps a third moment, for which the format has no place. {_WITHOUT}")
        if not theirs <= ours or not theirs:
            problem = f"{len(theirs - ours)} parameters of the optimizer are in none of the modules"
            raise UsageError(f"{problem}. Give each module the optimizer that trains it and nothing else.")

    def trains(self, optimizer: Any, slot: Slot) -> bool:
        """See `Side`."""
        return any(each is slot.tensor for group in optimizer.param_groups for each in group["params"])

    def adam(self, optimizer: Any, slots: Sequence[Slot], betas: tuple[float, float] | None) -> Adam | None:
        """See `Side`."""
        entries = {}
        for slot in slots:
            entry = optimizer.state.get(slot.tensor)
            if entry and not entry.keys() >= _ENTRY:
                problem = f"{slot.place}: the optimizer holds {', '.join(entry)}, expected {', '.join(sorted(_ENTRY))}"
                raise UsageError(f"{problem}. {_WITHOUT}")
            if entry:
                entries[slot.place] = (slot, entry)
        if not entries:
            return None
        steps = {place: float(entry["step"]) for place, (_, entry) in entries.items()}
        if len(set(steps.values())) > 1:
            told = ", ".join(f"{place} {step:g}" for place, step in steps.items())
            problem = f"Adam has made another number of steps for one parameter than for another ({told})"
            raise UsageError(f"{problem}; the format has one number a module. {_WITHOUT}")
        moments = {id(slot.tensor): (entry["exp_avg"], entry["exp_avg_sq"]) for slot, entry in entries.values()}
        return Adam(int(next(iter(steps.values()))), betas or self._one_pair(optimizer, slots), moments)

    def _one_pair(self, optimizer: Any, slots: Sequence[Slot]) -> tuple[float, float]:
        found = self.betas(optimizer, slots)
        if found is None:
            raise UsageError("the parameters have several betas; the format has one pair a module. " + _WITHOUT)
        return found

    def betas(self, optimizer: Any, slots: Sequence[Slot]) -> tuple[float, float] | None:
        """See `Side`."""
        ours = {id(slot.tensor) for slot in slots}
        groups = [group for group in optimizer.param_groups if any(id(each) in ours for each in group["params"])]
        found = {(float(group["betas"][0]), float(group["betas"][1])) for group in groups}
        return found.pop() if len(found) == 1 else None

    def adam_changes(self, optimizer: Any, slots: Sequence[Slot], new: NewAdam) -> list[Change]:
        """See `Side`: a parameter that is left out has no entry, as before its first step."""
        groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
        changes = []
        for slot in slots:
            if id(slot.tensor) not in groups:
                continue
            found = new.moments.get(id(slot.tensor))
            entry = None if found is None else _entry(slot, groups[id(slot.tensor)], new.t, found)
            changes.append(_entry_change(optimizer.state, slot.tensor, entry))
        return changes


def _staged(slot: Slot, like: Any, array: np.ndarray) -> Any:
    """The values in the dtype and on the device of a tensor."""
    import torch

    source = torch.from_numpy(array)
    staged = source.to(like.dtype)
    back = staged.to(source.dtype)
    if staged.dtype != source.dtype and not torch.equal(back.nan_to_num(nan=0.5), source.nan_to_num(nan=0.5)):
        dtypes = f"values of the file have no exact form in {TorchSide().dtype_of(like)}"
        raise UsageError(f"{slot.place}: {dtypes}. Load into a module of float32.")
    return staged.to(like.device)


def _entry(slot: Slot, group: Any, t: int, moments: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """What Adam keeps of a parameter, where and in which dtypes it would have made it itself."""
    import torch

    fast = bool(group.get("capturable") or group.get("fused"))
    is_double = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    dtype = torch.float64 if is_double else torch.float32
    step = torch.tensor(float(t), dtype=dtype, device=slot.tensor.device if fast else "cpu")
    if int(step) != t:
        raise UsageError(
            f"{slot.place}: Adam's step {t:,} is beyond what PyTorch counts exactly. Load without optimizer."
        )
    like = slot.tensor.detach()
    m, v = (
        torch.empty_like(like, memory_format=torch.preserve_format).copy_(_staged(slot, like, each)) for each in moments
    )
    return {"step": step, "exp_avg": m, "exp_avg_sq": v}


def _entry_change(state: Any, parameter: Any, entry: dict[str, Any] | None) -> Change:
    def put(value: dict[str, Any] | None) -> None:
        if value is None:
            state.pop(parameter, None)
        else:
            state[parameter] = value

    return Setting(lambda: state.get(parameter), put, entry)
