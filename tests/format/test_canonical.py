"""Canonical JSON: one spelling for every value, and no other is read."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import DamagedError
from perdure.format.canonical import decode, encode, spell

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_worked_bytes():
    value = {"b": [1, 1.0, -0.5, True, None], "a": 'ü\u2028"\\', "": {}}

    assert encode(value) == b'{"":{},"a":"\\u00fc\\u2028\\"\\\\","b":[1,1.0,-0.5,true,null]}\n'


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_come_back_and_their_bytes_are_the_only_spelling(value: object):
    data = encode(value)

    assert repr(decode(data, "doc")) == repr(sorted_keys(value))
    assert data.isascii()


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_a_part_is_spelled_as_it_stands_in_a_document(value: object):
    assert spell(value).encode("ascii") + b"\n" == encode(value)


@pytest.mark.parametrize("value", [True, False, 1, 0, 1.0, 0.0, -0.0, None, "", "\ud800", 10**40, 1e300], ids=repr)
def test_values_that_compare_equal_are_spelled_each_in_its_way(value: object):
    assert spell(value).encode("ascii") + b"\n" == encode(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_part_that_no_json_has_is_refused(value: float):
    with pytest.raises(ValueError, match="not JSON compliant"):
        spell(value)


def sorted_keys(value: object) -> object:
    match value:
        case dict():
            return {key: sorted_keys(value[key]) for key in sorted(value)}
        case list():
            return [sorted_keys(part) for part in value]
        case _:
            return value


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"b":1,"a":2}\n', id="unsorted keys"),
        pytest.param(b'{"a": 1}\n', id="white space"),
        pytest.param(b'{"a":1}', id="no final newline"),
        pytest.param(b'{"a":1}\n\n', id="two newlines"),
        pytest.param(b"1e0\n", id="another spelling of a float"),
        pytest.param(b"1.50\n", id="a trailing zero"),
        pytest.param(b"1E400\n", id="a float beyond the range"),
        pytest.param(b'"\xc3\xbc"\n', id="not escaped"),
        pytest.param(b'"\\u0041"\n', id="escaped without need"),
        pytest.param(b'"\\u00FC"\n', id="upper-case escape"),
        pytest.param(b'"\\/"\n', id="escaped slash"),
        pytest.param(b"-0\n", id="minus zero as an int"),
        pytest.param('{"a":1}\n'.encode("utf-16"), id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf1\n", id="byte order mark"),
    ],
)
def test_another_spelling_of_a_value_is_refused(data: bytes):
    with pytest.raises(DamagedError, match=r"^doc: not (in canonical form|canonical JSON)"):
        decode(data, "doc")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":1,"a":2}\n', "a key appears twice"),
        (b'{"a":[{"b":1,"b":1}]}\n', "a key appears twice"),
        (b"NaN\n", "NaN is no JSON"),
        (b"[Infinity]\n", "Infinity is no JSON"),
        (b"-Infinity\n", "-Infinity is no JSON"),
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"1 2\n", "Extra data"),
        (b"\xff\n", "can't decode"),
        (b"9" * 5000 + b"\n", "integer string"),
    ],
)
def test_what_is_no_strict_json_is_refused_with_the_reason(data: bytes, reason: str):
    with pytest.raises(DamagedError, match=rf"^doc: not canonical JSON \(.*{reason}"):
        decode(data, "doc")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack(opening: bytes, closing: bytes):
    data = opening * 100_000 + b"1" + closing * 100_000 + b"\n"

    with pytest.raises(DamagedError, match=r"^doc: nested too deeply$"):
        decode(data, "doc")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_lacks_is_never_written(value: float):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(value)
