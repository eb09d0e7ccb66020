"""From sections to modules: compared, staged and then set, all or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.interop.changes import Change, apply_all
from perdure.interop.storage_ckpt.adam_loading import Found, told_of
from perdure.interop.storage_ckpt.agents import notes_on_targets
from perdure.interop.storage_ckpt.matching import Wanted, agrees_in_names, check_sections
from perdure.interop.storage_ckpt.parts import ORDERS, Part, arranged
from perdure.interop.storage_ckpt.saving import check_dtype, count_name, counts_of
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint
from perdure.interop.storage_ckpt.slots import Slot

Pairs = list[tuple[Part, Slot, Section]]


@dataclass(frozen=True)
class LoadReport:
    """What a load did."""

    path: Path
    """The file."""
    version: int
    """Of the format."""
    sections: int
    """How many tensors were set."""
    scalars: Mapping[str, float]
    """All scalars of the file; those that are not Adam's and no layer's are the caller's to use."""
    moments: Mapping[str, str]
    """Of each module with an optimizer, by its prefix or number: `restored`, `restored in part` or `reset`."""
    notes: tuple[str, ...]
    """What was not exact, left out or is left to do: one sentence each."""


def load(checkpoint: StorageCheckpoint, parts: list[Part], *, adam_step: int | None, widen: bool) -> LoadReport:
    """Sets modules and optimizers to what a file holds.

    Raises:
        StorageMismatchError: the file is of another model.
        UsageError: something in it has no exact form in the module or its optimizer.
    """
    pairs = matched(checkpoint, parts)
    notes = [*checkpoint.notes]
    changes = _values(pairs, widen=widen)
    changes += _counts(checkpoint, parts, notes)
    moments: dict[str, str] = {}
    for part in parts:
        own = [(slot, section) for owner, slot, section in pairs if owner is part]
        found = Found(checkpoint, part, own, adam_step)
        if part.optimizer is not None:
            moments[part.label] = found.outcome
            changes += part.side.adam_changes(part.optimizer, part.parameters, found.adam)
        notes += told_of(found)
    apply_all(changes)
    notes += notes_on_targets(checkpoint)
    sections = len(checkpoint.sections)
    return LoadReport(checkpoint.path, checkpoint.version, sections, checkpoint.scalars, moments, tuple(notes))


def matched(checkpoint: StorageCheckpoint, parts: Sequence[Part]) -> Pairs:
    """Each tensor with its section, in whichever of the format's orders the file is.

    Raises:
        StorageMismatchError: it is in none.
    """
    layouts = [arranged(parts, order) for order in ORDERS]
    chosen = next((each for each in layouts if agrees_in_names(checkpoint.sections, _wanted(each))), layouts[0])
    check_sections(checkpoint, _wanted(chosen))
    pairs = [(part, slot, section) for (part, slot), section in zip(chosen, checkpoint.sections, strict=True)]
    _check_shared(pairs)
    return pairs


def _wanted(layout: list[tuple[Part, Slot]]) -> list[Wanted]:
    return [Wanted(slot.kind, slot.name, slot.size) for _, slot in layout]


def _check_shared(pairs: Pairs) -> None:
    """A tensor that stands at several places of a module must stand there with the same bits."""
    seen: dict[int, tuple[Slot, Section]] = {}
    for _, slot, section in pairs:
        other, first = seen.setdefault(id(slot.tensor), (slot, section))
        if other is not slot and slot.from_file(section.value).tobytes() != other.from_file(first.value).tobytes():
            problem = f"{other.name} and {slot.name} are one tensor in the model, and two different ones in the file"
            raise UsageError(f"{problem}. Build the model without sharing it.")


def _values(pairs: Pairs, *, widen: bool) -> list[Change]:
    changes = []
    for part, slot, section in pairs:
        check_dtype(slot.place, part.side.dtype_of(slot.tensor), widen=widen)
        changes.append(part.side.change(slot, slot.tensor, slot.from_file(section.value)))
    return changes


def _counts(checkpoint: StorageCheckpoint, parts: list[Part], notes: list[str]) -> list[Change]:
    changes, missing = [], []
    for part, slot in counts_of(parts):
        name = count_name(part, slot)
        if name not in checkpoint.scalars:
            missing.append(slot.place)
            continue
        changes.append(part.side.change(slot, slot.tensor, _count(checkpoint, name, slot)))
    if missing:
        told = ", ".join(missing)
        notes.append(f"{told}: not in the file, left as before; batch normalisation with momentum=None depends on it.")
    return changes


def _count(checkpoint: StorageCheckpoint, name: str, slot: Slot) -> Any:
    value = checkpoint.scalars[name]
    if value != int(value) or value < 0:
        raise UsageError(f"{checkpoint.path}: {name} is {value}, no count. Take an undamaged copy of the file.")
    return np.full(slot.shape, int(value), np.int64)
