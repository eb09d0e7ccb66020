"""The text of a value in an acceptance: typed, one spelling, and what a person types for it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.contract.text import literal, means, same, text_of

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(PLAIN)
def test_a_value_s_text_stands_for_it_alone(value: Any):
    assert same(literal(text_of(value)), value)


@given(PLAIN, PLAIN)
def test_two_values_never_share_a_text(first: Any, second: Any):
    if not same(first, second):
        assert text_of(first) != text_of(second)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("adam", "adam"),
        ("a:b", "'a:b'"),
        ("a b", "'a b'"),
        ("", "''"),
        ("1", "'1'"),
        ("None", "'None'"),
        ("nothing", "'nothing'"),
        ("nan", "'nan'"),
        (1, "1"),
        (1.0, "1.0"),
        (3e-4, "0.0003"),
        (True, "True"),
        (None, "None"),
        (math.inf, "inf"),
        (-0.0, "-0.0"),
    ],
)
def test_texts(value: Any, text: str):
    assert text_of(value) == text


def test_a_long_integer_is_written_in_hexadecimal_and_read_back():
    assert text_of(-(2**20_000)) == hex(-(2**20_000))
    assert literal(text_of(2**20_000)) == 2**20_000


@pytest.mark.parametrize(
    ("given", "exact", "is_meant"),
    [
        ("3e-4", "0.0003", True),
        (".0003", "0.0003", True),
        ("1", "1.0", False),
        ("1.0", "1", False),
        ("True", "1", False),
        ('"a b"', "'a b'", True),
        ("nan", "nan", True),
        ("-1", "-1", True),
        ("-0.0", "0.0", False),
        ("nothing", "nothing", True),
        ("'nothing'", "nothing", False),
        ("nothing", "'nothing'", False),
        ("class a:Net", "class a:Net", True),
    ],
)
def test_what_a_person_types(given: str, exact: str, is_meant: bool):
    assert means(given, exact) == is_meant
