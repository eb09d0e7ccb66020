"""What goes between kinds of files: a plain tree, what is said beside it, and what was lost on the way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from perdure.errors import UsageError
from perdure.interop.losses import Losses
from perdure.tree.leaves import Tree

ORDER = "its order in memory is not kept; sums over it may round otherwise."
"""The loss of an array whose rows do not come back where they stood in memory."""


@dataclass(frozen=True)
class Leaf:
    """One leaf as a file's headers describe it."""

    name: str
    """As the file spells it; nested ones as a path (`layers/0/kernel`)."""
    what: str
    """dtype and shape of an array (`float32 4×8`), or the value itself."""
    size_bytes: int = 0
    """Bytes of its array; 0 of a plain value."""


@dataclass(frozen=True)
class Contents:
    """What a file says of itself; no array was read."""

    kind: str
    """The kind's name and version, as a person reads them: `storage-ckpt v3`."""
    leaves: Sequence[Leaf]
    """Every leaf, in the file's order."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What it says beside its leaves; plain values."""
    notes: Sequence[str] = ()
    """What is odd about it, or not read, a sentence each."""


@dataclass(frozen=True, eq=False)
class Carried:
    """What was read from a file."""

    tree: dict[Any, Tree]
    """Nested dicts, lists and tuples of NumPy arrays and plain values. Flat files give flat dicts."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What was said beside the leaves; plain values."""
    noted: Losses = field(default_factory=Losses)
    """What came in another form or not at all."""

    @property
    def losses(self) -> tuple[str, ...]:
        """The same, `PLACE: SENTENCE` each."""
        return self.noted.lines()


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything checked, nothing written yet."""

    write: Callable[[Path], None]
    """Writes to a path where nothing stands: whole, or not at all."""
    losses: Sequence[str] = ()
    """What the target holds in another form or not at all, `PLACE: SENTENCE` each."""


class Kind(Protocol):
    """A kind of file that is read."""

    name: str
    """What `--to` calls it: `safetensors`."""
    title: str
    """What a person calls it, with its article: `a safetensors file`."""

    def recognises(self, path: Path) -> bool:
        """Whether what stands at `path` is of this kind, by a look at its content; damaged ones may be, too."""
        ...

    def read(self, path: Path) -> Carried:
        """Everything in it.

        Raises:
            DamagedError: it contradicts itself, is cut, or claims what cannot be.
        """
        ...


@runtime_checkable
class ForeignKind(Kind, Protocol):
    """A kind of file of another library, which `perdure show` describes."""

    def contents(self, path: Path) -> Contents:
        """What the file says of itself, without reading its arrays.

        Raises:
            DamagedError: it contradicts itself, is cut, or claims what cannot be.
        """
        ...


@runtime_checkable
class WritableKind(Kind, Protocol):
    """A kind of file that is written, too."""

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """Checks whether the kind can hold what is carried.

        Args:
            carried: from any kind.
            widen: floating-point numbers that the kind cannot hold become wider ones, exactly.

        Raises:
            UsageError: it cannot; every leaf in the way is named.
        """
        ...


def described(value: Tree) -> str:
    """Dtype and shape of an array, or a plain value, as a person reads it."""
    if isinstance(value, np.ndarray | np.generic):
        return described_array(value.dtype, value.shape)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def described_array(dtype: np.dtype | str, shape: Sequence[int]) -> str:
    """`float32 4×8`."""
    return f"{dtype} {'×'.join(map(str, shape)) or 'scalar'}"


def is_utf8(text: str) -> bool:
    """Whether it has a form in UTF-8; halves of surrogate pairs have none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse(title: str, problems: Iterator[str] | Sequence[str]) -> None:
    """Refuses a conversion whose leaves the target cannot hold.

    Args:
        title: of the target's kind.
        problems: `NAME: WHY` each; none is no refusal.

    Raises:
        UsageError: there are problems; all are named.
    """
    named = list(problems)
    if named:
        lines = "".join(f"\n  {problem}" for problem in named)
        way_out = (
            "Leave them out with --map 'PATTERN=', where PATTERN fits the whole name, or choose another kind with --to."
        )
        raise UsageError(f"{title} cannot hold {len(named)} of the leaves; nothing was written. {way_out}{lines}")
