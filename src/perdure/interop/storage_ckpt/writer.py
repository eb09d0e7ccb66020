"""Writes files of storage-ckpt, version 3: checked before the first byte, streamed, atomic and durable."""

import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import CommitError, UsageError
from perdure.interop.storage_ckpt.faults import Kind, StorageNameError
from perdure.interop.storage_ckpt.headers import MAX_NAME_BYTES
from perdure.interop.storage_ckpt.sections import FLOAT32, Section, SectionKind
from perdure.store.filesystem import FileSystem
from perdure.store.streamed_files import replace_streamed

CHUNK_BYTES = 1 << 28
"""Written at once at most; the format allows 1 GiB, and one write of Linux takes less than 2."""

FIRST_LINE = b"storage-ckpt v3\n"


@dataclass(frozen=True)
class Outgoing:
    """A section to write, whose arrays are made when their turn comes: a device's memory is copied piece by piece."""

    kind: SectionKind
    """`P` or `S`."""
    name: str
    """A dotted path."""
    size: int
    """The number of values of each array."""
    has_moments: bool
    """Whether two moments follow the value; only of a `P`."""
    arrays: Callable[[], Iterable[np.ndarray]]
    """The value, then the moments: float32, of any shape, in the order in which they are to stand."""


Scalars = Mapping[str, float] | Sequence[tuple[str, float]]


def write(path: str | os.PathLike[str], sections: Iterable[Section | Outgoing], scalars: Scalars = ()) -> None:
    """Writes a file of version 3. When this returns it is durable; whatever is raised, an existing file is untouched.

    Args:
        path: the file to make or to replace; its directory must exist.
        sections: in the order in which they are to stand.
        scalars: written as float64, so whole numbers are exact to 2^53.

    Raises:
        StorageNameError: a name is empty, holds a space or a newline, or two scalars have the same.
        UsageError: an array is not float32 or not of its section's size; a moment is missing; there is no directory.
        CommitError: the disk failed.
    """
    write_to(Path(path).expanduser(), [_outgoing(section) for section in sections], scalars)


def write_to(
    path: Path,
    sections: Sequence[Outgoing],
    scalars: Scalars = (),
    *,
    chunk_bytes: int = CHUNK_BYTES,
    filesystem: FileSystem | None = None,
) -> None:
    """Like `write`, of sections that are made as they are written.

    Args:
        path: the file to make or to replace.
        sections: in the order in which they are to stand.
        scalars: name and value.
        chunk_bytes: how much is written at once.
        filesystem: how the disk is reached.
    """
    pairs = [*scalars.items()] if isinstance(scalars, Mapping) else [*scalars]
    _check(path, sections, pairs)
    if path.is_dir() or not path.parent.is_dir():
        found = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise UsageError(f"{path}: {found}. Name a file in a directory that exists.")
    try:
        replace_streamed(path, _pieces(path, sections, pairs, chunk_bytes), filesystem)
    except OSError as error:
        problem = f"{path}: could not be written: {error}. There is what was there before, or, if only the directory"
        raise CommitError(f"{problem} could not be synced, the new file; free the disk and save again.") from error


def check_names(path: Path, names: Iterable[str]) -> None:
    """Refuses names that would break the headers.

    Raises:
        StorageNameError: one is empty, too long, holds a space or a newline, or has no UTF-8 form.
    """
    for name in names:
        problem = _problem_of(name)
        if problem:
            way_out = "Names are dotted paths, such as 0.weight."
            raise StorageNameError(Kind.BAD_HEADER, str(path), f"the name {name!r} {problem}", way_out)


def _problem_of(name: str) -> str | None:
    if not name:
        return "is empty"
    if " " in name or "\n" in name:
        return "holds a space or a newline, which end a name"
    try:
        too_long = len(name.encode("utf-8")) > MAX_NAME_BYTES
    except UnicodeEncodeError:
        return "has no UTF-8 form"
    return f"has more than {MAX_NAME_BYTES:,} bytes" if too_long else None


def _check(path: Path, sections: Sequence[Outgoing], scalars: Sequence[tuple[str, float]]) -> None:
    check_names(path, [section.name for section in sections])
    check_names(path, [name for name, _ in scalars])
    seen: set[str] = set()
    for name, value in scalars:
        if name in seen:
            problem = f"two scalars have the name {name}"
            raise StorageNameError(Kind.DUPLICATE_NAME, str(path), problem, "Give each a name of its own.")
        seen.add(name)
        _check_scalar(path, name, value)


def _check_scalar(path: Path, name: str, value: Any) -> None:
    if not isinstance(value, int | float | np.integer | np.floating):
        raise UsageError(f"{path}: {name}: {type(value).__name__}, and a scalar is one number. Give a float or an int.")
    try:
        is_exact = isinstance(value, float) or math.isnan(value) or float(value) == value
    except OverflowError:
        is_exact = False
    if not is_exact or (isinstance(value, np.integer) and int(float(value)) != int(value)):
        raise UsageError(f"{path}: {name}: float64 holds {value} inexactly. Scalars are exact to 2^53.")


def _outgoing(section: Section | Outgoing) -> Outgoing:
    if isinstance(section, Outgoing):
        return section
    for array in section.arrays():
        _check_array(section.name, section.size, array)
    if section.has_moments != (section.v is not None) or (section.has_moments and section.kind != "P"):
        raise UsageError(
            f"{section.name}: moments come in pairs, and of parameters (P) only. Give m and v, or neither."
        )
    return Outgoing(section.kind, section.name, section.size, section.has_moments, section.arrays)


def _check_array(name: str, size: int, array: np.ndarray) -> None:
    if array.dtype.newbyteorder("=") != np.float32 or array.size != size:
        found = f"{array.size:,} values of {array.dtype}"
        raise UsageError(
            f"{name}: {found}, expected {size:,} of float32. Convert it yourself, so that nothing is lost."
        )


def _pieces(
    path: Path, sections: Sequence[Outgoing], scalars: Sequence[tuple[str, float]], chunk_bytes: int
) -> Iterator[bytes | memoryview]:
    yield FIRST_LINE
    for section in sections:
        flag = f" {int(section.has_moments)}" if section.kind == "P" else ""
        yield f"{section.kind} {section.name} {section.size}{flag}\n".encode()
        count = 0
        for array in section.arrays():
            count += 1
            _check_array(f"{path}: {section.name}", section.size, array)
            yield from _chunks(array, chunk_bytes)
        if count != (3 if section.has_moments else 1):
            raise UsageError(f"{path}: {section.name}: {count} arrays. Give the value, and both moments or none.")
    for name, value in scalars:
        yield f"K {name}\n".encode() + struct.pack("<d", value)


def _chunks(array: np.ndarray, chunk_bytes: int) -> Iterator[memoryview]:
    """The bytes in C order, a bounded number at a time."""
    data = np.ascontiguousarray(array, FLOAT32).reshape(-1).view(np.uint8).data
    for start in range(0, len(data), chunk_bytes):
        yield data[start : start + chunk_bytes]
