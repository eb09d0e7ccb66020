"""The values of a file of storage-ckpt: sections in their order, scalars by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

FLOAT32 = np.dtype("<f4")
"""How every value stands in a file of version 3."""

PARAMETER: Literal["P"] = "P"
STATE: Literal["S"] = "S"
SCALAR: Literal["K"] = "K"

SectionKind = Literal["P", "S"]


@dataclass(frozen=True, eq=False)
class Section:
    """One tensor of a file. The format knows no shapes: all arrays are flat."""

    kind: SectionKind
    """`P`, a parameter, or `S`, state of a module."""
    name: str
    """A dotted path, `0.weight`. Names may repeat: several modules without a prefix."""
    value: np.ndarray
    """(size,), float32; of a file that was read, a read-only view of it that need not be aligned."""
    m: np.ndarray | None = None
    """Adam's first moment, like `value`; None if the section has no moments."""
    v: np.ndarray | None = None
    """Adam's second moment."""
    offset: int = field(default=0, kw_only=True)
    """The byte of the file at which the section's header begins."""

    @property
    def size(self) -> int:
        """The number of values."""
        return self.value.size

    @property
    def has_moments(self) -> bool:
        """Whether Adam's moments stand beside the value."""
        return self.m is not None

    def arrays(self) -> Iterator[np.ndarray]:
        """The value, then the moments if there are any."""
        yield self.value
        if self.m is not None and self.v is not None:
            yield self.m
            yield self.v


@dataclass(frozen=True, eq=False)
class StorageCheckpoint:
    """A file of storage-ckpt."""

    path: Path
    """Where it was read."""
    version: int
    """2 or 3."""
    sections: tuple[Section, ...]
    """In the order of the file."""
    scalars: Mapping[str, float]
    """In the order of the file; float64."""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know: one sentence each."""

    def loaded(self) -> "StorageCheckpoint":
        """The same with all values in memory of its own, aligned and writable; the file is needed no more.

        It is one block of memory: blocks of one array each cost several times as much, for the kernel hands out small
        pages for them.
        """
        block = np.empty(sum(array.nbytes for each in self.sections for array in each.arrays()), np.uint8)
        start, sections = 0, []
        for section in self.sections:
            copies = []
            for array in section.arrays():
                place = block[start : start + array.nbytes]
                place[:] = array.view(np.uint8)
                copies.append(place.view(FLOAT32))
                start += array.nbytes
            value, m, v = [*copies, None, None][:3]
            sections.append(replace(section, value=value, m=m, v=v))
        return replace(self, sections=tuple(sections))
