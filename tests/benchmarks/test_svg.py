"""A chart is well-formed, holds every point where it belongs, and is the same for the same numbers."""

import xml.etree.ElementTree as ET

import pytest
from benchmarks.curves.svg import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Line, chart

NAMESPACE = "{http://www.w3.org/2000/svg}"
LINES = [Line("seed 1", [(100, 0.0), (200, 5.0), (400, 10.0)]), Line("a < b & c", [(100, 20.0), (400, -3.0)])]


def drawn(lines: list[Line] = LINES, y_range: tuple[float, float] = (0.0, 10.0), threshold: float = 7.5) -> ET.Element:
    text = chart("Returns <1>", lines, threshold=threshold, x_label="env-steps", y_label="mean return", y_range=y_range)
    return ET.fromstring(text)


def texts(root: ET.Element) -> list[str | None]:
    return [element.text for element in root.iter(f"{NAMESPACE}text")]


def places(root: ET.Element) -> list[list[tuple[float, ...]]]:
    lines = root.iter(f"{NAMESPACE}polyline")
    return [[tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] for line in lines]


def test_points_lie_where_the_axes_say():
    bottom, right = HEIGHT - 50, WIDTH - RIGHT
    first, _ = places(drawn())

    assert first[0] == (LEFT + (right - LEFT) / 4, bottom)
    assert first[1] == (LEFT + (right - LEFT) / 2, (TOP + bottom) / 2)
    assert first[2] == (right, TOP)


def test_what_lies_outside_is_drawn_at_the_edge():
    _, second = places(drawn())

    assert [y for _, y in second] == [TOP, HEIGHT - 50]


def test_the_threshold_is_dashed_and_named():
    root = drawn()
    dashed = [line for line in root.iter(f"{NAMESPACE}line") if "stroke-dasharray" in line.attrib]

    assert [line.attrib["y1"] for line in dashed] == [f"{Axis(0, 10, HEIGHT - 50, TOP).at(7.5):.1f}"]
    assert "threshold 7.5" in texts(root)


def test_title_labels_and_legend_are_there_whatever_their_characters():
    assert {"Returns <1>", "env-steps", "mean return", "seed 1", "a < b & c"} <= set(texts(drawn()))


def test_lines_are_told_apart():
    colours = [line.attrib["stroke"] for line in drawn().iter(f"{NAMESPACE}polyline")]

    assert len(set(colours)) == 2


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (-1500, 0, [-1500, -1000, -500, 0]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 199_680, [0, 50_000, 100_000, 150_000]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]):
    assert Axis(low, high, 0, 1).ticks() == pytest.approx(expected)


def test_numbers_have_separators_and_a_minus_sign():
    found = texts(drawn([Line("x", [(199_680, -100.0)])], (-1500.0, 0.0), -250.0))

    assert {"−1,500", "0", "150,000", "threshold −250"} <= set(found)


def test_the_same_numbers_are_the_same_bytes():
    assert ET.tostring(drawn()) == ET.tostring(drawn())


@pytest.mark.parametrize("lines", [[], [Line("x", [])], [Line("x", [(1, 1)])] * 7])
def test_what_cannot_be_drawn_is_refused(lines: list[Line]):
    with pytest.raises(ValueError, match="a chart needs a point, and at most 6 lines"):
        drawn(lines)
