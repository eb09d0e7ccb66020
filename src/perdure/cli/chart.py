"""A curve in text: values over env-steps with marks below the axis. Pure: values in, lines out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
"""Env-steps and value."""

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Unicode's braille patterns: the bit of each dot, by column and row of a cell."""
_BRAILLE = 0x2800


@dataclass(frozen=True)
class Style:
    """The characters that a chart is drawn with."""

    columns: int
    """Dots side by side in a character."""
    rows: int
    """Dots on top of one another in a character."""
    side: str
    corner: str
    bottom: str
    marks: Mapping[str, str]
    """Kind of mark -> its character; where several fall into one place the later ones hide the earlier."""


FINE = Style(2, 4, "│", "└", "─", {"checkpoint": "●", "stop": "■", "resume": "▶"})
ASCII = Style(1, 1, "|", "+", "-", {"checkpoint": "o", "stop": "x", "resume": ">"})


def style_for(encoding: str | None) -> Style:
    """The finer one where the encoding can say it."""
    needed = "".join((chr(_BRAILLE + 0xFF), FINE.side, FINE.corner, FINE.bottom, *FINE.marks.values()))
    try:
        needed.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return FINE


def chart(
    points: Sequence[Point],
    marks: Mapping[str, Sequence[float]],
    *,
    width: int = 80,
    height: int = 8,
    style: Style = FINE,
) -> list[str]:
    """The curve's lines, each at most `width` characters long; none for fewer than two finite values.

    Several values in one place are drawn as their mean, gaps as straight lines.

    Args:
        points: env-steps, growing, and values; what is not finite is left out.
        marks: kind (a key of `style.marks`) -> env-steps.
        width: of the whole chart, in characters; it is never narrower than 30.
        height: of the curve, in lines.
        style: what it is drawn with.
    """
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) < 2:
        return []
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, labels))
    across = max(width, 30) - margin - 2
    steps = [*(step for step, _ in finite), *(step for kind in marks.values() for step in kind)]
    start, end = min(steps), max(steps)
    curve = _curve(finite, (start, end), (low, high), (across, height), style)
    lines = [f"{label:>{margin}} {style.side}{line}" for label, line in zip(labels, curve, strict=True)]
    under = " " * (margin + 1)
    lines.append(f"{under}{style.corner}{style.bottom * across}")
    lines += _marks(marks, (start, end), across, style, f"{under} ")
    first, last = f"{start:,.0f}", f"{end:,.0f} env-steps"
    lines.append(f"{under} {first}{last:>{across - len(first)}}")
    return [line.rstrip() for line in lines]


def _at(step: float, bounds: tuple[float, float], places: int) -> int:
    start, end = bounds
    return min(places - 1, int((step - start) / (end - start) * places)) if end > start else 0


def _curve(
    points: Iterable[Point],
    steps: tuple[float, float],
    values: tuple[float, float],
    size: tuple[int, int],
    style: Style,
) -> list[str]:
    columns, rows = size[0] * style.columns, size[1] * style.rows
    means = _means(points, steps, columns)
    heights = {at: _row(value, values, rows) for at, value in means.items()}
    cells = [[0] * size[0] for _ in range(size[1])]
    before = None
    for at, row in sorted(heights.items()):
        from_row = row if before is None else before + (1 if row > before else -1 if row < before else 0)
        for between in range(min(row, from_row), max(row, from_row) + 1):
            _set(cells, at, between, style)
        before = row
    return ["".join(_character(cell, style) for cell in line) for line in cells]


def _means(points: Iterable[Point], steps: tuple[float, float], columns: int) -> dict[int, float]:
    """The mean of each column; between columns with values, what stands on the straight line."""
    sums: dict[int, list[float]] = {}
    for step, value in points:
        sums.setdefault(_at(step, steps, columns), []).append(value)
    there = {at: math.fsum(value / len(group) for value in group) for at, group in sums.items()}
    known = sorted(there)
    for left, right in pairwise(known):
        for at in range(left + 1, right):
            share = (at - left) / (right - left)
            there[at] = there[left] * (1 - share) + there[right] * share
    return there


def _row(value: float, values: tuple[float, float], rows: int) -> int:
    """From the top; values that are all equal stand in the middle."""
    low, high = values
    half = 0.5  # of everything, so that a span beyond the greatest float is no infinity
    span = high * half - low * half
    if span == 0:
        return rows // 2
    return round((high * half - value * half) / span * (rows - 1))


def _set(cells: list[list[int]], column: int, row: int, style: Style) -> None:
    bit = _DOTS[column % style.columns][row % style.rows]
    cells[row // style.rows][column // style.columns] |= bit


def _character(cell: int, style: Style) -> str:
    if cell == 0:
        return " "
    return chr(_BRAILLE + cell) if style.rows > 1 else "*"


def _marks(
    marks: Mapping[str, Sequence[float]], steps: tuple[float, float], across: int, style: Style, under: str
) -> list[str]:
    """The line of the marks, and what they mean."""
    line, there = [" "] * across, [kind for kind in style.marks if marks.get(kind)]
    for kind in there:
        for step in marks[kind]:
            line[_at(step, steps, across)] = style.marks[kind]
    legend = "  ".join(f"{style.marks[kind]} {kind}" for kind in there)
    return [f"{under}{''.join(line)}", f"{under}{legend}"] if there else []
