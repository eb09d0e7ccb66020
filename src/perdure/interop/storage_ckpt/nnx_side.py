"""What Flax NNX and optax do for the format: values of variables, and Adam's moments and steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perdure.contract.naming import name_of
from perdure.errors import UsageError
from perdure.interop.changes import Change, Setting
from perdure.interop.storage_ckpt.nnx_walk import NnxLayers, named_slots, paths_of
from perdure.interop.storage_ckpt.optax_states import bound_betas, split_states
from perdure.interop.storage_ckpt.slots import Adam, Names, NewAdam, Slot
from perdure.interop.storage_ckpt.walk import slots_by_name, slots_of

_WITHOUT = "Save without it (save_moments=False), or keep the optimizer in a checkpoint of perdure's."


class NnxSide:
    """See `Side`; of one module."""

    shares_optimizers = False

    def __init__(self) -> None:
        self._paths: Mapping[int, tuple[Any, ...]] = {}

    def slots(self, module: Any, names: Names | None, *, fused: bool) -> list[Slot]:
        """See `Side`."""
        self._paths = paths_of(module)
        return (
            slots_of(module, NnxLayers(), fused=fused) if names is None else slots_by_name(names, named_slots(module))
        )

    def dtype_of(self, tensor: Any) -> str:
        """See `Side`."""
        return str(tensor.get_value().dtype)

    def host(self, tensor: Any) -> np.ndarray:
        """See `Side`."""
        return np.asarray(tensor.get_value()).astype(np.float32, copy=False)

    def change(self, slot: Slot, tensor: Any, array: np.ndarray) -> Change:
        """See `Side`."""
        import jax

        old = tensor.get_value()
        narrow = array.astype(old.dtype)
        if narrow.dtype != array.dtype and not np.array_equal(narrow.astype(array.dtype), array, equal_nan=True):
            raise UsageError(
                f"{slot.place}: values of the file have no exact form in {old.dtype}. Load into a module of float32."
            )
        return Setting(tensor.get_value, tensor.set_value, jax.device_put(narrow, old.sharding))

    def check_covered(self, optimizer: Any, slots: Sequence[Slot]) -> None:
        """See `Side`."""
        from flax import nnx

        if not isinstance(optimizer, nnx.Optimizer):
            raise UsageError(f"{name_of(type(optimizer))}: no nnx.Optimizer. {_WITHOUT}")
        moments = split_states(optimizer.opt_state).adam
        ours = {self._paths[id(slot.tensor)] for slot in slots}
        theirs = {*_flat(moments.mu)}
        if not theirs or not theirs <= ours:
            told = ", ".join("/".join(map(str, path)) for path in sorted(theirs - ours, key=str)[:3]) or "nothing"
            problem = f"the optimizer keeps moments of {told}, which the module's walk does not have"
            raise UsageError(f"{problem}. Give each module the optimizer that was made for it.")

    def trains(self, optimizer: Any, slot: Slot) -> bool:
        """See `Side`."""
        return self._paths[id(slot.tensor)] in _flat(split_states(optimizer.opt_state).adam.mu)

    def adam(self, optimizer: Any, slots: Sequence[Slot], betas: tuple[float, float] | None) -> Adam | None:
        """See `Side`."""
        states = split_states(optimizer.opt_state)
        t = int(states.adam.count.get_value())
        counts = {int(each.get_value()) for each in (*states.counts, optimizer.step)}
        if counts != {t}:
            problem = f"Adam has made {t:,} updates, other counts of the optimizer are at {sorted(counts)}"
            raise UsageError(f"{problem}; the format has one number. {_WITHOUT}")
        if not t:
            return None
        known = betas or self.betas(optimizer, slots)
        if known is None:
            raise UsageError("the optimizer's b1 and b2 cannot be read. Give betas=(b1, b2), as it was made with.")
        return Adam(t, known, {id(slot.tensor): pair for slot, pair in self._moments(optimizer, slots)})

    def _moments(self, optimizer: Any, slots: Sequence[Slot]) -> list[tuple[Slot, tuple[Any, Any]]]:
        state = split_states(optimizer.opt_state).adam
        mu, nu = _flat(state.mu), _flat(state.nu)
        paths = {id(slot.tensor): self._paths[id(slot.tensor)] for slot in slots}
        return [(slot, (mu[path], nu[path])) for slot in slots if (path := paths[id(slot.tensor)]) in mu]

    def betas(self, optimizer: Any, slots: Sequence[Slot]) -> tuple[float, float] | None:
        """See `Side`."""
        del slots
        return bound_betas(optimizer.tx)

    def adam_changes(self, optimizer: Any, slots: Sequence[Slot], new: NewAdam) -> list[Change]:
        """See `Side`: moments that are left out become zero, as `init` makes them."""
        changes: list[Change] = []
        for slot, pair in self._moments(optimizer, slots):
            zeros = np.zeros(slot.shape, np.float32)
            arrays = new.moments.get(id(slot.tensor), (zeros, zeros))
            changes += [self.change(slot, tensor, array) for tensor, array in zip(pair, arrays, strict=True)]
        states = split_states(optimizer.opt_state)
        return [*changes, *(_counting(each, new.t) for each in (states.adam.count, *states.counts, optimizer.step))]


def _counting(variable: Any, t: int) -> Change:
    import jax

    old = variable.get_value()
    if t > np.iinfo(old.dtype).max:
        raise UsageError(f"Adam's step {t:,} is beyond {old.dtype}. Load without the optimizer.")
    return Setting(variable.get_value, variable.set_value, jax.device_put(np.asarray(t, old.dtype), old.sharding))


def _flat(state: Any) -> dict[tuple[Any, ...], Any]:
    """The variables of a state by their paths."""
    from flax import nnx

    return {tuple(path): variable for path, variable in nnx.to_flat_state(state)}
