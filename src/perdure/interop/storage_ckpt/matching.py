"""The sections of a file against the tensors of a model: by position and by name, before anything is touched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.errors import Finding
from perdure.interop.storage_ckpt.faults import Kind, StorageMismatchError
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint

_SHOWN = 12

_NAMES = (
    "Build the model as the writer's, layers in the same order. An activation takes an index of its own; where the "
    "writer's layers apply theirs themselves, load with fused=True; where names differ, give `walk`."
)
_SIZES = "Build the model with the writer's sizes."
_COUNTS = "Build the model with the writer's layers, and give all modules of the file in their order."


@dataclass(frozen=True)
class Wanted:
    """A section that a model expects."""

    kind: str
    """`P` or `S`."""
    name: str
    """With its prefix."""
    size: int
    """The number of values."""


def check_sections(checkpoint: StorageCheckpoint, wanted: Sequence[Wanted]) -> None:
    """Compares all sections of a file with those that a model expects, in order.

    Raises:
        StorageMismatchError: they differ; it lists the differences up to the first one that shifts all others.
    """
    found = list(_differences(checkpoint.sections, wanted))
    if found:
        kinds, findings = zip(*found, strict=True)
        raise StorageMismatchError(kinds[0], str(checkpoint.path), findings[:_SHOWN])


def agrees_in_names(sections: Sequence[Section], wanted: Sequence[Wanted]) -> bool:
    """Whether kinds and names are the same, in order."""
    return [(each.kind, each.name) for each in sections] == [(each.kind, each.name) for each in wanted]


def _differences(sections: Sequence[Section], wanted: Sequence[Wanted]) -> Iterator[tuple[Kind, Finding]]:
    for at, (section, expected) in enumerate(zip(sections, wanted, strict=False)):
        place = f"section {at + 1}, byte {section.offset:,}"
        theirs, ours = f"{section.kind} {section.name}", f"{expected.kind} {expected.name}"
        if theirs != ours:
            yield Kind.NAME_MISMATCH, _finding(f"{place} is {theirs}", f"the model has {ours} there", _NAMES)
            return
        if section.size != expected.size:
            sizes = f"has {section.size:,} values", f"the model's has {expected.size:,}"
            yield Kind.SIZE_MISMATCH, _finding(f"{place}: {theirs} {sizes[0]}", sizes[1], _SIZES)
    for expected in wanted[len(sections) :]:
        missing = f"the model has {expected.kind} {expected.name} ({expected.size:,} values)"
        yield Kind.MISSING_SECTION, _finding(f"the file ends after section {len(sections)}", missing, _COUNTS)
    for at, section in enumerate(sections[len(wanted) :], len(wanted) + 1):
        extra = f"section {at}, byte {section.offset:,} is {section.kind} {section.name}"
        yield Kind.EXTRA_SECTION, _finding(extra, f"the model has no more than {len(wanted)} tensors", _COUNTS)


def _finding(file: str, model: str, advice: str) -> Finding:
    return Finding(f"{file}, {model}", "", "", advice)
