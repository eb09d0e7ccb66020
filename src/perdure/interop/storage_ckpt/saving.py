"""From modules to sections and scalars: what is written of each part, checked before the first byte."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.interop.storage_ckpt.parts import Order, Part, arranged
from perdure.interop.storage_ckpt.powers import running_power
from perdure.interop.storage_ckpt.slots import Adam, Slot
from perdure.interop.storage_ckpt.writer import Outgoing

NARROW = frozenset({"float16", "bfloat16"})
"""Dtypes of which every value is one of float32."""

MOST_EXACT = 1 << 53
"""float64 counts exactly to here."""

Betas = tuple[float, float] | None


def sections_of(parts: list[Part], order: Order, adams: dict[int, Adam], *, widen: bool) -> list[Outgoing]:
    """The sections of all parts.

    Raises:
        UsageError: a tensor has a dtype that the format has no exact form for.
    """
    return [_section(part, slot, adams.get(id(part)), widen=widen) for part, slot in arranged(parts, order)]


def adams_of(parts: list[Part], betas: Betas) -> dict[int, Adam]:
    """What the optimizers know, by `id` of the part; parts whose optimizer has not stepped are left out."""
    found = {
        id(part): part.side.adam(part.optimizer, part.parameters, betas) for part in parts if part.optimizer is not None
    }
    return {key: adam for key, adam in found.items() if adam is not None}


def scalars_of(parts: list[Part], adams: dict[int, Adam]) -> list[tuple[str, float]]:
    """Adam's step and powers of each part, then what its layers count."""
    scalars: list[tuple[str, float]] = []
    for part in parts:
        adam = adams.get(id(part))
        if adam is not None:
            name = f"{part.scalars}opt"
            powers = [running_power(beta, adam.t) for beta in adam.betas]
            scalars += [(f"{name}.t", adam.t), (f"{name}.b1_pow", powers[0]), (f"{name}.b2_pow", powers[1])]
    scalars += [(count_name(part, slot), int(part.side.host(slot.tensor))) for part, slot in counts_of(parts)]
    return scalars


def counts_of(parts: list[Part]) -> Iterator[tuple[Part, Slot]]:
    """Every number that a layer counts."""
    for part in parts:
        for slot in part.of_kind("K"):
            if slot.size != 1:
                raise UsageError(f"{slot.place}: {slot.size} whole numbers; the format has room for single ones only.")
            yield part, slot


def count_name(part: Part, slot: Slot) -> str:
    """Names of scalars must differ although those of sections repeat, so they begin with the part's number."""
    return slot.name if part.is_prefixed else part.scalars + slot.name


def _section(part: Part, slot: Slot, adam: Adam | None, *, widen: bool) -> Outgoing:
    moments = adam.moments.get(id(slot.tensor)) if adam is not None else None
    tensors = [slot.tensor, *(moments or ())]
    for tensor in tensors:
        check_dtype(slot.place, part.side.dtype_of(tensor), widen=widen)

    def arrays() -> Iterator[np.ndarray]:
        for tensor in tensors:
            yield slot.to_file(part.side.host(tensor))

    kind: Any = slot.kind
    return Outgoing(kind, slot.name, slot.size, moments is not None, arrays)


def check_dtype(place: str, dtype: str, *, widen: bool) -> None:
    """Only float32 has a form in the format; narrower floats have one on request.

    Raises:
        UsageError: the dtype has none.
    """
    if dtype == "float32" or (widen and dtype in NARROW):
        return
    if dtype in NARROW:
        raise UsageError(
            f"{place}: {dtype}, and the format holds float32. Give widen=True: every value has an exact form."
        )
    problem = f"{place}: {dtype}, and the format holds float32: values would change"
    raise UsageError(f"{problem}. Keep it in a checkpoint of perdure's, or convert the module to float32 yourself.")
