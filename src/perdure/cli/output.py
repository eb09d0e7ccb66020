"""How the tool writes: aligned text for people, one JSON document for programs."""

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.sinks.wording import duration, size

__all__ = ["age", "count", "duration", "print_json", "print_table", "printable", "size", "value"]


def print_json(document: Any) -> None:
    """One document, indented; what JSON has no number for (NaN, infinities) comes as text."""
    print(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(value) for value in node]
    if isinstance(node, float) and not math.isfinite(node):
        return str(node)
    return str(node) if isinstance(node, Path) else node


def printable(text: str) -> str:
    """A name or a sentence from a file, as one line in which nothing is an order to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> None:
    """Prints `table`."""
    for line in table(rows, right=right, indent=indent):
        print(line)


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> Iterator[str]:
    """Rows in aligned columns, two spaces apart: the lines.

    Args:
        rows: all of the same length; the first may be a head.
        right: the columns that are set flush right, by position.
        indent: what each line begins with.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def age(created: str) -> float:
    """Seconds since a time stamp in ISO 8601."""
    return (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()


def count(number: int, thing: str) -> str:
    """A number with its noun: `1 leaf`, `2 checkpoints`."""
    return f"{number:,} {thing if number == 1 else _PLURALS.get(thing, f'{thing}s')}"


_PLURALS = {"boundary": "boundaries", "directory": "directories", "leaf": "leaves", "process": "processes"}


def value(node: Any) -> str:
    """A plain value of a contract or a metrics row, shortened."""
    text = repr(node) if not isinstance(node, float) else f"{node:.6g}"
    return text if len(text) <= 60 else f"{text[:57]}…"
