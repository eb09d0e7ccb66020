"""Cells: every value of a metric row has one spelling, and the very value comes back from it."""

import csv
import io
import math
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.sinks.cells import decode_cell, encode_cell

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
PLAIN = st.none() | st.booleans() | st.integers() | FLOATS | st.text(st.characters(codec="utf-8"))
VALUES = PLAIN | st.recursive(PLAIN, lambda parts: st.lists(parts, max_size=3), max_leaves=6)


def bits(value: Any) -> Any:
    """A value in a form that compares bit for bit, and by type."""
    if isinstance(value, list):
        return [bits(part) for part in value]
    return (type(value), struct.pack(">d", value)) if isinstance(value, float) else (type(value), value)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (12, "12"),
        (2**70, "1180591620717411303424"),
        pytest.param(10**5000, hex(10**5000), id="5,001 digits"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (1e22, "1e+22"),
        (5e-324, "5e-324"),
        (-0.0, "-0.0"),
        (3.0, "3.0"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (struct.unpack(">d", bytes.fromhex("fff8000000000000"))[0], "-nan"),
        (struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0], "nan:7ff8000000000001"),
        (True, "True"),
        (None, "None"),
        ([1, [0.5, None], "x"], '["1", "[\\"0.5\\", \\"None\\"]", "x"]'),
        ([], "[]"),
        ("text, and more", "text, and more"),
        ("nan", '"nan"'),
        ("1e5", "1e5"),
        ("1e+05", '"1e+05"'),
        ("", '""'),
        ("[1]", '"[1]"'),
        ('"', '"\\""'),
        ("two\nlines", '"two\\nlines"'),
        ("ü", "ü"),
    ],
)
def test_the_spelling(value: Any, cell: str):
    assert encode_cell(value) == cell
    assert bits(decode_cell(cell)) == bits(value)


@given(VALUES)
@example("0x1f")
@example("-12")
@example("1.0e+05")
@example("\u2028")
@example("٣")
def test_every_value_comes_back_bit_for_bit_through_a_csv_file(value: Any):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(["x", encode_cell(value)])
    ((_, cell),) = csv.reader(io.StringIO(text.getvalue(), newline=""))

    assert cell
    assert bits(decode_cell(cell)) == bits(value)


@pytest.mark.parametrize("value", [0.1, 1e-5, -0.0, 1e300, math.inf, -math.inf, 3])
def test_other_readers_take_numbers_for_what_they_are(value: float):
    assert float(encode_cell(value)) == value
