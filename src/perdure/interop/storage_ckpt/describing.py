"""A file in words, for `perdure show`."""

import math
from dataclasses import dataclass

from perdure.interop.storage_ckpt.agents import looks_like, modules_of
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint


@dataclass(frozen=True)
class Description:
    """What a file holds."""

    version: int
    """Of the format."""
    sections: int
    """How many tensors."""
    values: int
    """How many numbers in them, moments not counted."""
    with_moments: int
    """How many of the tensors have Adam's moments."""
    modules: tuple[str, ...]
    """The prefixes of the modules in order; `-` is one without."""
    agents: tuple[str, ...]
    """The agents of noeira whose files look like this one."""
    lines: tuple[str, ...]
    """All of it for a person, a section and a scalar a line."""


def describe(checkpoint: StorageCheckpoint) -> Description:
    """Tells what a file holds, from its headers alone: no value is read."""
    sections = checkpoint.sections
    values = sum(section.size for section in sections)
    with_moments = sum(section.has_moments for section in sections)
    agents = looks_like(checkpoint)
    moments = f", {with_moments} with Adam's moments" if with_moments else ""
    head = f"storage-ckpt version {checkpoint.version}: {len(sections)} sections of {values:,} values{moments}"
    lines = [head, *(f"looks like {agent.name}: {agent.told}" for agent in agents), *checkpoint.notes]
    lines += [_line(section) for section in sections]
    lines += [f"K {_safe(name)} = {_number(value)}" for name, value in checkpoint.scalars.items()]
    modules = tuple(map(_safe, modules_of(sections)))
    names = tuple(agent.name for agent in agents)
    return Description(checkpoint.version, len(sections), values, with_moments, modules, names, tuple(lines))


def _line(section: Section) -> str:
    moments = " with moments" if section.has_moments else ""
    return f"{section.kind} {_safe(section.name)} ({section.size:,}){moments}"


def _number(value: float) -> str:
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) and abs(value) < 1 << 53 else repr(value)


def _safe(name: str) -> str:
    """Names come from a file of anybody's: a terminal must not obey them."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)
