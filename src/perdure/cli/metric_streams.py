"""Metric streams as far as a checkpoint counts them: proven, and compared row by row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.format import numbers
from perdure.format.digests import digest_of
from perdure.runs.directory import RunDirectory
from perdure.tree.diff import ABSENT, Difference


def count_rows(run: RunDirectory) -> tuple[int, dict[str, Any] | None]:
    """How many whole rows there are, and the last one; the others are not decoded, there may be millions."""
    data = run.metrics.read_bytes() if run.metrics.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    try:
        last = json.loads(whole[whole.rfind(b"\n", 0, -1) + 1 :] or "null")
    except ValueError:
        last = None
    readable = {name: _readable(value) for name, value in last.items()} if isinstance(last, dict) else None
    return whole.count(b"\n"), readable


def _readable(value: Any) -> Any:
    """A plain value; a tagged number (NaN, a huge integer) as itself."""
    return numbers.decode_plain(value) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Stream:
    """The rows up to a checkpoint."""

    rows: tuple[bytes, ...]
    """In canonical JSON, one a boundary."""
    bytes_after: int
    """Bytes behind them, which no checkpoint counts yet."""
    problem: str | None
    """Why the file is not what the checkpoint counted."""


@dataclass(frozen=True)
class StreamDiff:
    """How two streams compare."""

    rows: tuple[int, int]
    """Rows of each."""
    unequal_rows: int
    """Rows that differ, or that only one of them has."""
    differences: tuple[Difference, ...]
    """Each value that differs."""

    @property
    def identical(self) -> bool:
        """Whether every row is the same, byte for byte."""
        return self.unequal_rows == 0


def read_stream(run: RunDirectory, mark: Mapping[str, Any] | None) -> Stream:
    """The rows that a checkpoint's mark counts, and whether they are the ones that it counted."""
    data = run.metrics.read_bytes() if run.metrics.exists() else b""
    if mark is None:
        return Stream((), len(data), None)
    counted = data[: mark["offset"]]
    rows = tuple(counted.splitlines(keepends=True))
    if len(counted) == mark["offset"] and digest_of(counted) == mark["digest"]:
        return Stream(rows, len(data) - len(counted), None)
    problem = f"{run.metrics.name}: its first {mark['offset']:,} bytes are not the rows that the checkpoint counted"
    return Stream(rows, len(data) - len(counted), problem)


def compare_streams(first: Stream, second: Stream) -> StreamDiff:
    """Every value that differs, row by row from the first boundary on."""
    unequal, differences = 0, []
    for at in range(max(len(first.rows), len(second.rows))):
        a, b = (stream.rows[at] if at < len(stream.rows) else None for stream in (first, second))
        if a != b:
            unequal += 1
            differences += _compare_rows(at, a, b)
    return StreamDiff((len(first.rows), len(second.rows)), unequal, tuple(differences))


def _compare_rows(at: int, a: bytes | None, b: bytes | None) -> list[Difference]:
    place = f"metrics/{at + 1}"
    if a is None or b is None:
        return [Difference(place, ABSENT if a is None else "a row", ABSENT if b is None else "a row")]
    try:
        left, right = json.loads(a), json.loads(b)
    except ValueError:
        return [Difference(place, repr(a)[1:60], repr(b)[1:60])]
    return [
        Difference(f"{place}/{name}", _text(left, name), _text(right, name))
        for name in sorted(left.keys() | right.keys())
        if _text(left, name) != _text(right, name)
    ]


def _text(row: dict[str, Any], name: str) -> str:
    return json.dumps(row[name]) if name in row else ABSENT
