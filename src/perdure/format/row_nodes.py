"""Rows as JSON: which segment files hold them, and the digest of every block of every column.

Segments are written once and shared by later checkpoints. Blocks begin at multiples of `block_rows`, counted from the
first row ever added, whatever the segments are: so the state digest of the same rows is the same however they were
saved.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from perdure.errors import DamagedError
from perdure.format import dtypes
from perdure.format.canonical import Json
from perdure.format.digests import DIGEST_PATTERN, Digest
from perdure.format.tensors import contiguous_bytes
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows, split_at_blocks

BLOCK_ROWS = 1024
"""Rows that one digest covers; part of the format."""


@dataclass(frozen=True)
class SegmentColumn:
    """One column of a segment file."""

    offset: int
    """First byte of its first row, from the start of the file."""
    digests: tuple[str, ...]
    """One for each part between multiples of BLOCK_ROWS."""


@dataclass(frozen=True)
class Segment:
    """A file that holds rows."""

    file: str
    """Its name."""
    start: int
    """Its first row."""
    stop: int
    """One past its last row."""
    used_from: int
    """The first of its rows that counts; earlier ones have left the ring since."""
    columns: Mapping[str, SegmentColumn]
    """By column name."""

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The row ranges that the digests cover."""
        return split_at_blocks(self.start, self.stop, BLOCK_ROWS)


@dataclass(frozen=True)
class StoredRows:
    """The manifest's entry for rows."""

    start: int
    stop: int
    capacity: int
    columns: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    """By name: dtype and the shape of one row."""
    segments: tuple[Segment, ...]
    """In order; together they hold every row from `start` to `stop`."""


def row_digest(rows: Rows, column: str, start: int, stop: int) -> str:
    """The digest of some rows of a column, read now unless it is known."""
    known = rows.digests.get((column, start, stop))
    if known is None:
        digest = Digest()
        for view in rows.views(column, start, stop):
            digest.update(contiguous_bytes(view))
        known = rows.digests[column, start, stop] = digest.text()
    return known


def block_digests(rows: Rows, column: str) -> list[str]:
    """The digest of every block of a column; the first and the last may be cut."""
    return [row_digest(rows, column, *part) for part in split_at_blocks(rows.start, rows.stop, BLOCK_ROWS)]


def rows_form(rows: Rows) -> list[Json]:
    """What a state digest covers: range, capacity, dtypes, shapes and every byte; not the segments."""
    columns = [
        [name, dtypes.name_of(column.dtype), list(column.shape[1:]), block_digests(rows, name)]
        for name, column in sorted(rows.columns.items())
    ]
    return ["rows", rows.start, rows.stop, rows.capacity, BLOCK_ROWS, columns]


def encode_rows(rows: Rows, segments: tuple[Segment, ...]) -> Json:
    """The node's content."""
    return {
        "start": rows.start,
        "stop": rows.stop,
        "capacity": rows.capacity,
        "block_rows": BLOCK_ROWS,
        "columns": {
            name: {"dtype": dtypes.name_of(column.dtype), "shape": list(column.shape[1:])}
            for name, column in rows.columns.items()
        },
        "segments": [
            {
                "file": segment.file,
                "start": segment.start,
                "stop": segment.stop,
                "used_from": segment.used_from,
                "columns": {
                    name: {"offset": column.offset, "digests": list(column.digests)}
                    for name, column in segment.columns.items()
                },
            }
            for segment in segments
        ],
    }


def decode_rows(entry: Json, path: Path) -> StoredRows:
    """The inverse of `encode_rows`.

    Raises:
        DamagedError: malformed, or the segments do not hold exactly the rows.
    """
    place = format_path(path)
    try:
        stored = StoredRows(
            _natural(entry["start"]),
            _natural(entry["stop"]),
            _natural(entry["capacity"]),
            {name: _column(column) for name, column in entry["columns"].items()},
            tuple(_segment(segment) for segment in entry["segments"]),
        )
        fields = {"start", "stop", "capacity", "block_rows", "columns", "segments"}
        if entry.keys() != fields or _natural(entry["block_rows"]) != BLOCK_ROWS:
            raise DamagedError("unknown fields or another block size")
    except (KeyError, TypeError, AttributeError, ValueError, DamagedError) as error:
        raise DamagedError(f"{place}: malformed rows ({error})") from error
    _check_cover(stored, place)
    return stored


def _natural(value: Json) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("a count that is no natural number")
    return value


def _column(entry: Json) -> tuple[np.dtype, tuple[int, ...]]:
    if entry.keys() != {"dtype", "shape"}:
        raise ValueError("a column with other fields than dtype and shape")
    dtype, shape = dtypes.dtype_of(entry["dtype"]), tuple(_natural(axis) for axis in entry["shape"])
    if len(shape) >= 64 or prod(filter(None, shape)) * dtype.itemsize >= 1 << 62:
        raise ValueError("rows beyond any memory")
    return dtype, shape


def _segment(entry: Json) -> Segment:
    columns = {
        name: SegmentColumn(_natural(column["offset"]), tuple(map(_digest, column["digests"])))
        for name, column in entry["columns"].items()
    }
    if entry.keys() != {"file", "start", "stop", "used_from", "columns"} or not isinstance(entry["file"], str):
        raise ValueError("a segment with other fields")
    counts = (_natural(entry["start"]), _natural(entry["stop"]), _natural(entry["used_from"]))
    return Segment(entry["file"], *counts, columns)


def _digest(text: Json) -> str:
    if not isinstance(text, str) or not DIGEST_PATTERN.fullmatch(text):
        raise ValueError("a malformed digest")
    return text


def _check_cover(stored: StoredRows, place: str) -> None:
    if not stored.columns or not stored.start <= stored.stop <= stored.start + stored.capacity:
        raise DamagedError(f"{place}: rows {stored.start} to {stored.stop} do not fit {stored.capacity}")
    end = stored.start
    for segment in stored.segments:
        if segment.used_from != end or not segment.start <= segment.used_from < segment.stop:
            raise DamagedError(f"{place}: segment {segment.file[:80]!r} does not follow the one before it")
        number = (segment.stop - 1) // BLOCK_ROWS - segment.start // BLOCK_ROWS + 1
        complete = all(len(column.digests) == number for column in segment.columns.values())
        if segment.columns.keys() != stored.columns.keys() or not complete:
            raise DamagedError(f"{place}: segment {segment.file[:80]!r} lacks a column or a digest")
        end = segment.stop
    if end != stored.stop:
        raise DamagedError(f"{place}: the segments end at row {end}, not at {stored.stop}")


AllocateRows = Callable[[Path, StoredRows], Rows]
"""Makes the memory for rows and arranges that it is filled."""
