"""A chart of lines over steps as SVG, written by hand: no plotting library, the same bytes for the same numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's, which colour-blind readers can tell apart."""


@dataclass(frozen=True)
class Line:
    """One curve."""

    label: str
    """What the legend calls it."""
    points: Sequence[Point]
    """Step and value, in the order of steps; values are finite."""


@dataclass(frozen=True)
class Axis:
    """From a range of numbers to a range of pixels."""

    low: float
    """The number at the first pixel."""
    high: float
    """The number at the last pixel."""
    first: float
    """Pixel of `low`."""
    last: float
    """Pixel of `high`."""

    def at(self, value: float) -> float:
        """The pixel of a number."""
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round numbers within the range: four to ten of them."""
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def chart(
    title: str, lines: Sequence[Line], *, threshold: float, x_label: str, y_label: str, y_range: tuple[float, float]
) -> str:
    """The chart as the text of an SVG file.

    Args:
        title: Above it, and its name for screen readers.
        lines: Each has a colour and a place in the legend of its own; six at most.
        threshold: Drawn as a dashed line.
        x_label: Below the horizontal axis, which begins at 0 and ends with the last point.
        y_label: Beside the vertical axis.
        y_range: Lowest and highest value shown; points outside of it are drawn at its edge.

    Raises:
        ValueError: If there are no points, or more lines than colours.
    """
    if not any(line.points for line in lines) or len(lines) > len(COLOURS):
        raise ValueError(f"a chart needs a point, and at most {len(COLOURS)} lines; got {len(lines)} lines.")
    across = Axis(0, max(step for line in lines for step, _ in line.points), LEFT, WIDTH - RIGHT)
    up = Axis(*y_range, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, size=14),
        *_grid(across, up),
        _text((across.first + across.last) / 2, HEIGHT - 12, x_label, anchor="middle"),
        _text(18, (up.first + up.last) / 2, y_label, anchor="middle", turned=True),
        *_threshold(across, up, threshold),
        *(part for index, line in enumerate(lines) for part in _curve(across, up, line, index)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(across: Axis, up: Axis) -> list[str]:
    """Both axes, their ticks with numbers, and a faint line at each number of the vertical one."""
    parts = []
    for value in up.ticks():
        y = up.at(value)
        parts += [_stroke(across.first, y, across.last, y, "#e5e5e5"), _text(LEFT - 8, y + 4, _number(value), "end")]
    for value in across.ticks():
        x = across.at(value)
        parts += [_stroke(x, up.first, x, up.first + 5, "#333"), _text(x, up.first + 20, _number(value), "middle")]
    parts.append(_stroke(across.first, up.first, across.last, up.first, "#333"))
    parts.append(_stroke(across.first, up.first, across.first, up.last, "#333"))
    return parts


def _threshold(across: Axis, up: Axis, value: float) -> list[str]:
    y = up.at(value)
    line = _stroke(across.first, y, across.last, y, "#333", ' stroke-dasharray="6 4"')
    return [line, _text(across.last + 8, y + 4, f"threshold {_number(value)}")]


def _curve(across: Axis, up: Axis, line: Line, index: int) -> list[str]:
    """The curve, and its entry in the legend, which stands in the middle of the right margin."""
    low, high = sorted((up.low, up.high))
    places = [f"{across.at(step):.1f},{up.at(min(max(value, low), high)):.1f}" for step, value in line.points]
    colour, y = COLOURS[index], HEIGHT / 2 - 30 + 20 * index
    x = WIDTH - RIGHT + 14
    return [
        f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        _stroke(x, y, x + 18, y, colour, ' stroke-width="3"'),
        _text(x + 24, y + 4, line.label),
    ]


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, size: int | None = None, turned: bool = False
) -> str:
    more = f' font-size="{size}"' if size else ""
    more += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333"{more}>{escape(text)}</text>'


def _number(value: float) -> str:
    """With separators between thousands, a real minus sign, and no digits that say nothing."""
    text = f"{abs(value):,.2f}".rstrip("0").rstrip(".") if value % 1 else f"{abs(value):,.0f}"
    return f"−{text}" if value < 0 else text
