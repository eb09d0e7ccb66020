"""`metrics.csv`: the rows of a run as a table, for spreadsheets and data frames."""

import csv
import filecmp
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.sinks.cells import decode_cell, encode_cell
from perdure.sinks.sink import Row, Sink, SinkInfo

COUNTERS = ("env_steps", "updates", "boundary")
"""The first columns; metrics follow in the order in which they first appeared, those of one row by their names."""

_LONGEST = 2**31 - 1


class Csv(Sink):
    """Keeps a CSV file that is the exact image of the run's `metrics.jsonl`, row for row and bit for bit.

    A row is in the file when `boundary` returns. A metric that appears for the first time adds a column at the right
    and rewrites the file; rows without it have an empty cell. When the run is opened the file is compared with
    `metrics.jsonl`, and replaced if it differs: rows that the resume cut off go, rows that it lacks come.
    `perdure.sinks.read_csv` gives the rows back; `perdure.sinks.cells` says how values are spelled.
    """

    def __init__(self, path: str | os.PathLike[str] = "metrics.csv") -> None:
        """Prepares the sink.

        Args:
            path: the file; relative to the run's directory.
        """
        self._given = path
        self._path = Path(path)
        self._columns: list[str] = []
        self._file: io.FileIO | None = None

    def begin(self, info: SinkInfo) -> None:
        """Makes the file the image of the rows so far."""
        self._path = info.directory / self._given
        self._columns = columns_of(info.rows())
        image = self._path.with_name(f".{self._path.name}.new")
        with image.open("w", encoding="utf-8", newline="") as file:
            file.write(_line(self._columns))
            file.writelines(_line(_cells(row, self._columns)) for row in info.rows())
        if self._path.is_file() and filecmp.cmp(image, self._path, shallow=False):
            image.unlink()
        else:
            image.replace(self._path)
        self._open()

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """Appends a line."""
        if self._file is None:
            raise UsageError("Csv.row: the sink is not open; `begin` comes first.")
        new = [name for name in metrics if name not in self._columns]
        if new:
            self._widen(new)
        line = _line(_cells((counters, metrics), self._columns)).encode()
        if self._file.write(line) != len(line):
            raise OSError(f"{self._path}: a line could not be written whole")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        self.close()
        self._file = self._path.open("ab", buffering=0)

    def _widen(self, new: list[str]) -> None:
        """Adds columns: a new file in the place of the old one, so that a reader sees one or the other."""
        head = len(_line(self._columns).encode())
        self._columns = [*self._columns, *new]
        wider = self._path.with_name(f".{self._path.name}.new")
        with self._path.open("rb") as old, wider.open("wb") as file:
            old.seek(head)
            file.write(_line(self._columns).encode())
            empty = b"," * len(new) + b"\n"
            file.writelines(line.removesuffix(b"\n") + empty for line in old)  # no cell of a row has a line's end in it
        wider.replace(self._path)
        self._open()


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a file that `Csv` wrote, as `Run.metrics_rows` gives them; a torn last line is left out."""
    with Path(path).open(encoding="utf-8", newline="") as file, _cells_of_any_length():
        lines = csv.reader(_whole(file))
        columns = next(lines)
        return [{name: decode_cell(cell) for name, cell in zip(columns, cells, strict=True) if cell} for cells in lines]


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The columns that a file of these rows has."""
    columns: dict[str, None] = dict.fromkeys(COUNTERS)
    for _, metrics in rows:
        columns.update(dict.fromkeys(metrics))
    return list(columns)


def _cells(row: Row, columns: list[str]) -> list[str]:
    counters, metrics = row
    values = {**metrics, **vars(counters)}
    return [encode_cell(values[name]) if name in values else "" for name in columns]


def _line(cells: Iterable[str]) -> str:
    text, cells = io.StringIO(), list(cells)
    # Python's reader takes "\r" for a line's end, but its writer does not quote it.
    quoting = csv.QUOTE_ALL if any("\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator="\n", quoting=quoting).writerow(cells)
    return text.getvalue()


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """Python's reader refuses long texts unless the limit, which is the process's, is raised."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _whole(file: TextIO) -> Iterator[str]:
    return (line for line in file if line.endswith(("\n", "\r")))
