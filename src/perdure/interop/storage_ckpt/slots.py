"""The tensors of a module as the format names and lays them out, and what a framework does for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from perdure.interop.changes import Change

SlotKind = Literal["P", "S", "K"]


@dataclass(frozen=True, eq=False)
class Slot:
    """One tensor of a module, and the section that it stands for."""

    kind: SlotKind
    """`P`, `S`, or `K`: a whole number that a layer counts."""
    name: str
    """Of the section: child index, then field."""
    place: str
    """In the module, for messages: `layers/0/kernel`."""
    tensor: Any
    """The framework's own tensor or variable."""
    shape: tuple[int, ...]
    """As the module has it."""
    is_transposed: bool = False
    """Whether the file holds the other order of axes: weights of linear layers stand there as (in, out)."""

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    def under(self, prefix: str | None) -> "Slot":
        """The same with its section's name below a prefix."""
        return replace(self, name=f"{prefix}.{self.name}") if prefix else self

    def to_file(self, array: np.ndarray) -> np.ndarray:
        """An array of the module's shape in the file's order."""
        return array.T if self.is_transposed else array

    def from_file(self, flat: np.ndarray) -> np.ndarray:
        """(size,) of the file as an array of the module's shape, of the machine's byte order and in C order."""
        array = np.ascontiguousarray(flat, flat.dtype.newbyteorder("="))
        if self.is_transposed:
            return np.ascontiguousarray(array.reshape(self.shape[::-1]).T)
        return array.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Adam:
    """What Adam knows of one module."""

    t: int
    """The number of updates."""
    betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    moments: Mapping[int, tuple[Any, Any]]
    """The framework's m and v by `id` of the parameter's tensor; those that have none are left out."""


@dataclass(frozen=True, eq=False)
class NewAdam:
    """What Adam is to know of one module; parameters that are left out start anew."""

    t: int
    """The number of updates; 0 where nothing is known."""
    moments: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """m and v by `id` of the parameter's tensor, in the module's shape."""


class Side(Protocol):
    """What one framework does for the format."""

    shares_optimizers: bool
    """Whether one optimizer may train several modules."""

    def slots(self, module: Any, names: "Names | None", *, fused: bool) -> list[Slot]:
        """The module's tensors, parameters first."""
        ...

    def dtype_of(self, tensor: Any) -> str:
        """The dtype by NumPy's name."""
        ...

    def host(self, tensor: Any) -> np.ndarray:
        """The values as float32 on the host, in the tensor's shape; of a count, as an integer."""
        ...

    def change(self, slot: Slot, tensor: Any, array: np.ndarray) -> Change:
        """To set a tensor, in its own dtype and on its own device; a UsageError if that would lose something."""
        ...

    def check_covered(self, optimizer: Any, slots: Sequence[Slot]) -> None:
        """Refuses an optimizer that is no Adam, holds more than moments and steps, or trains something else."""
        ...

    def trains(self, optimizer: Any, slot: Slot) -> bool:
        """Whether the optimizer keeps moments of a parameter, or will."""
        ...

    def adam(self, optimizer: Any, slots: Sequence[Slot], betas: tuple[float, float] | None) -> Adam | None:
        """What the optimizer knows of these parameters; None before the first step."""
        ...

    def adam_changes(self, optimizer: Any, slots: Sequence[Slot], new: NewAdam) -> list[Change]:
        """To make the optimizer know this of these parameters."""
        ...

    def betas(self, optimizer: Any, slots: Sequence[Slot]) -> tuple[float, float] | None:
        """The decays, if they can be read."""
        ...


Names = Sequence[str] | Mapping[str, str]
"""A user's own walk: names of the module's tensors in the file's order, or the file's names with the module's."""
