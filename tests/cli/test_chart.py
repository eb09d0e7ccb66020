"""The chart is a function of its values: exact lines."""

import math

import pytest

from perdure.cli.chart import ASCII, FINE, chart, style_for

RISING = [(100.0 * at, float(at)) for at in range(11)]
MARKS = {"checkpoint": [0.0, 500.0, 1000.0], "stop": [500.0], "resume": [300.0]}


def test_in_ascii():
    assert chart(RISING, MARKS, width=30, height=4, style=ASCII) == [
        "10 |                     *****",
        "   |              *******",
        "   |    **********",
        " 0 |****",
        "   +--------------------------",
        "    o      >     x           o",
        "    o checkpoint  x stop  > resume",
        "    0          1,000 env-steps",
    ]


def test_in_braille():
    assert chart(RISING, MARKS, width=30, height=2, style=FINE) == [
        "10 │             ⢀⣀⣀⣀⠤⠤⠤⠔⠒⠒⠒⠉⠉",
        " 0 │⣀⣀⠤⠤⠤⠔⠒⠒⠒⠉⠉⠉⠉⠁",
        "   └──────────────────────────",
        "    ●      ▶     ■           ●",
        "    ● checkpoint  ■ stop  ▶ resume",
        "    0          1,000 env-steps",
    ]


def test_values_in_one_place_are_their_mean_and_gaps_are_lines():
    crowded = [(float(at), float(at % 2)) for at in range(1000)]
    lines = chart(crowded, {}, width=40, height=3, style=ASCII)

    assert [line[3:] for line in lines[:3]] == ["", "*" * (40 - 3), ""]


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(0.0, 1.0), (1.0, math.nan)], [(0.0, math.inf), (1.0, 2.0)]])
def test_nothing_is_drawn_of_fewer_than_two_values(points: list[tuple[float, float]]):
    assert chart(points, MARKS) == []


def test_what_is_not_finite_is_left_out():
    with_gaps = [*RISING[:3], (250.0, math.nan), (260.0, -math.inf), *RISING[3:]]

    assert chart(with_gaps, MARKS, style=ASCII) == chart(RISING, MARKS, style=ASCII)


def test_equal_values_stand_in_the_middle_and_huge_ones_overflow_nothing():
    flat = chart([(0.0, 5.0), (9.0, 5.0)], {}, width=30, height=3, style=ASCII)
    huge = chart([(0.0, -1.7e308), (9.0, 1.7e308)], {}, width=40, height=3, style=ASCII)

    assert flat[1] == "  |" + "*" * 27
    assert huge[0].startswith(" 1.7e+308 |")
    assert huge[0].endswith("*")


def test_no_line_is_longer_than_the_terminal_is_wide():
    for width in (30, 47, 80, 200):
        for style in (ASCII, FINE):
            lines = chart([(step, 1e6 * value) for step, value in RISING], MARKS, width=width, style=style)
            assert max(len(line) for line in lines if "stop" not in line) <= width


def test_the_characters_fit_the_encoding():
    assert style_for("utf-8") is FINE
    assert style_for("ascii") is style_for("latin-1") is style_for(None) is style_for("no such") is ASCII
