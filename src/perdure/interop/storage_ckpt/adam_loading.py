"""Adam of one module in a file: what it held, what can be made of it, and what to tell about that."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from perdure.interop.storage_ckpt.faults import Kind, StorageFileError
from perdure.interop.storage_ckpt.parts import Part
from perdure.interop.storage_ckpt.powers import is_power_of
from perdure.interop.storage_ckpt.saving import MOST_EXACT
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint
from perdure.interop.storage_ckpt.slots import NewAdam, Slot


class Found:
    """What a file holds of one module's Adam."""

    def __init__(
        self,
        checkpoint: StorageCheckpoint,
        part: Part,
        own: Sequence[tuple[Slot, Section]],
        adam_step: int | None,
    ) -> None:
        """Looks for it.

        Args:
            checkpoint: the file.
            part: the module.
            own: its tensors and their sections.
            adam_step: the number of updates, where the caller knows it and the file does not say.

        Raises:
            StorageFileError: the file's step is no number of updates.
        """
        self.checkpoint = checkpoint
        self.part = part
        self.parameters = [(slot, section) for slot, section in own if slot.kind == "P" and _is_trained(part, slot)]
        self.with_moments = [section.name for _, section in self.parameters if section.has_moments]
        self.step = self._step() if self._name("t") in checkpoint.scalars else adam_step

    def _name(self, field: str) -> str:
        return f"{self.part.scalars}opt.{field}"

    def _step(self) -> int:
        value = self.checkpoint.scalars[self._name("t")]
        if not 0 <= value <= MOST_EXACT or value != int(value):
            problem = f"the scalar {self._name('t')} is {value}, which is no number of updates"
            raise StorageFileError(Kind.BAD_FLOAT, str(self.checkpoint.path), problem, "Take an undamaged copy.")
        return int(value)

    @property
    def is_usable(self) -> bool:
        """Whether there are moments, and the step that they need."""
        return bool(self.with_moments) and self.step is not None

    @property
    def outcome(self) -> str:
        """For the report."""
        if not self.is_usable:
            return "reset"
        return "restored" if len(self.with_moments) == len(self.parameters) else "restored in part"

    @cached_property
    def adam(self) -> NewAdam:
        """What the optimizer is to know."""
        if not self.is_usable:
            return NewAdam(0, {})
        moments = {
            id(slot.tensor): (slot.from_file(section.m), slot.from_file(section.v))
            for slot, section in self.parameters
            if section.m is not None and section.v is not None
        }
        return NewAdam(self.step or 0, moments)

    def other_betas(self) -> Iterator[str]:
        """Powers in the file that are none of the optimizer's betas."""
        betas = self.part.side.betas(self.part.optimizer, self.part.parameters)
        for at, field in enumerate(("b1_pow", "b2_pow")):
            power = self.checkpoint.scalars.get(self._name(field))
            if betas and power is not None and not is_power_of(power, betas[at], self.step or 0):
                yield f"{self._name(field)} is {power:.6g}, which is not {betas[at]:g} to the power of {self.step}"


def _is_trained(part: Part, slot: Slot) -> bool:
    """Whether moments of it are wanted; of a module without an optimizer it is only told that they are there."""
    return part.optimizer is None or part.side.trains(part.optimizer, slot)


def told_of(found: Found) -> Iterator[str]:
    """What whoever loads should know about the moments."""
    label, with_moments = found.part.label, found.with_moments
    if found.part.optimizer is None:
        if with_moments:
            yield f"{label}: the file has Adam's moments; no optimizer was given, so they were left."
        return
    if not with_moments:
        yield f"{label}: the file has no moments of Adam; the optimizer's were reset, its step is 0."
    elif not found.is_usable:
        reason = f"the file has moments, but not Adam's step ({found.part.scalars}opt.t), without which they are no use"
        yield f"{label}: {reason}; the optimizer's were reset. Give adam_step=N if you know it."
    else:
        without = [section.name for _, section in found.parameters if not section.has_moments]
        if without:
            yield f"{label}: no moments in the file for {', '.join(without)}; those were reset."
        for problem in found.other_betas():
            yield f"{label}: {problem}: the writer's Adam had other betas, and going on will differ from it."
