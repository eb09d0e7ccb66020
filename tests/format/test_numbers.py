"""Plain leaves in JSON: no bit is lost, and each value has one spelling only."""

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.numbers import decode_plain, encode_plain

EXAMPLES = settings(max_examples=150, deadline=None)

FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack(">d", struct.pack(">Q", bits))[0])
"""Every bit pattern of a float: NaN payloads, quiet and signalling, subnormals, -0.0."""


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def through_json(value: Any) -> Any:
    """The value after a round trip through the bytes of a canonical document."""
    return decode_plain(canonical.decode(canonical.encode(encode_plain(value)), "doc"))


@EXAMPLES
@given(st.integers() | st.integers(-(2**80), 2**80) | st.integers(2**53 - 2, 2**53 + 2))
@example(2**53)
@example(-(2**53) - 1)
@example(10**5000)
def test_integers_of_any_size_come_back(value: int):
    back = through_json(value)

    assert (type(back), back) == (int, value)


@EXAMPLES
@given(FLOATS | st.floats())
@example(-0.0)
@example(float("inf"))
@example(float("-inf"))
@example(struct.unpack(">d", bytes.fromhex("7ff0000000000001"))[0])
@example(struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0])
@example(5e-324)
def test_floats_come_back_bit_by_bit(value: float):
    back = through_json(value)

    assert (type(back), bits(back)) == (float, bits(value))


@EXAMPLES
@given(FLOATS | st.just(-0.0), FLOATS)
def test_complex_numbers_come_back_bit_by_bit(real: float, imag: float):
    back = through_json(complex(real, imag))

    assert type(back) is complex
    assert (bits(back.real), bits(back.imag)) == (bits(real), bits(imag))


@EXAMPLES
@given(st.binary(max_size=40) | st.text(st.characters(exclude_categories=()), max_size=10) | st.booleans() | st.none())
def test_bytes_text_booleans_and_none_come_back(value: bytes | str | bool | None):
    back = through_json(value)

    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53, "9007199254740992"),
        (2**53 + 1, '{"int":"0x20000000000001"}'),
        (-(2**53) - 1, '{"int":"-0x20000000000001"}'),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, '{"float":"8000000000000000"}'),
        (float("inf"), '{"float":"7ff0000000000000"}'),
        (complex(0.5, float("-inf")), '{"complex":[0.5,{"float":"fff0000000000000"}]}'),
        (b"\x00\xff", '{"bytes":"00ff"}'),
        (b"", '{"bytes":""}'),
        (True, "true"),
        (None, "null"),
    ],
)
def test_worked_spellings(value: Any, text: str):
    assert canonical.encode(encode_plain(value)) == f"{text}\n".encode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"int":"0x1"}', id="a small int needs no tag"),
        pytest.param('{"int":"0x20000000000000"}', id="2^53 needs no tag"),
        pytest.param('{"float":"3ff0000000000000"}', id="an ordinary float needs no tag"),
        pytest.param('{"float":"0000000000000000"}', id="0.0 needs no tag"),
        pytest.param('{"complex":[-0.0,1.0]}', id="-0.0 in a complex needs its tag"),
        pytest.param('{"bytes":"00","int":"0x20000000000001"}', id="two tags"),
        pytest.param('{"bytes":"00","more":1}', id="a tag and something else"),
    ],
)
def test_a_value_in_another_than_its_one_spelling_is_refused(text: str):
    with pytest.raises(DamagedError, match=r"^a number in another than its one spelling: "):
        decode_plain(json.loads(text))


@pytest.mark.parametrize("text", ["-0.0", "9007199254740993", "-9007199254740993", "1180591620717411303424"])
def test_a_number_that_needs_its_tag_is_refused_without(text: str):
    with pytest.raises(DamagedError, match=r"^a number in another than its one spelling: "):
        decode_plain(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"int":"0x020000000000001"}',
        '{"int":"0X20000000000001"}',
        '{"int":"0x2000000000000A"}',
        '{"int":"20000000000001"}',
        '{"int":" 0x20000000000001"}',
        '{"int":"0x2000_0000000001"}',
        '{"int":9007199254740993}',
        '{"float":"7FF0000000000000"}',
        '{"float":"7ff000000000000"}',
        '{"float":"nan"}',
        '{"float":1.5}',
        '{"complex":[1.0]}',
        '{"complex":[1.0,2.0,3.0]}',
        '{"bytes":"0"}',
        '{"bytes":"0G"}',
        '{"bytes":"0A"}',
        '{"bool":true}',
        "{}",
    ],
)
def test_an_unknown_or_malformed_tag_is_refused(text: str):
    with pytest.raises(DamagedError, match=r"^an unknown tagged value: "):
        decode_plain(json.loads(text))


@pytest.mark.parametrize("part", ["1", "true", "null", '"1.0"', '{"int":"0x20000000000001"}', "[1.0]"])
def test_a_complex_number_is_made_of_two_floats(part: str):
    with pytest.raises(DamagedError, match="no float"):
        decode_plain(json.loads(f'{{"complex":[{part},1.0]}}'))


@pytest.mark.parametrize("node", [[], [1], [[1.0]]])
def test_a_list_is_no_plain_value(node: list[Any]):
    with pytest.raises(DamagedError):
        decode_plain(node)
