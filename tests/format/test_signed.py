"""Small documents bear their own digest; anything else than an intact one of the right kind is refused by name."""

import pytest

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.canonical import Json
from perdure.format.digests import digest_of
from perdure.format.signed import Form, decode_signed, encode_signed

FORM = Form("NOTE.json", "a-note", version=3)
ONE_OF_SEVERAL = Form("NOTE.json", "a-note", version=3, kind="short")


@pytest.mark.parametrize("form", [FORM, ONE_OF_SEVERAL], ids=["alone", "one of several"])
def test_what_was_written_comes_back(form: Form):
    assert decode_signed(encode_signed({"text": "ä", "number": 1}, form), form) == {"text": "ä", "number": 1}


def test_every_flipped_bit_is_found():
    data = encode_signed({"text": "a", "number": 1}, FORM)
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError, match=r"^NOTE\.json: "):
            decode_signed(bytes(flipped), FORM)


def signed(**heading: Json) -> bytes:
    return canonical.encode({**heading, "digest": digest_of(canonical.encode(heading))})


@pytest.mark.parametrize(
    "data",
    [
        signed(format="another", version=3),
        signed(format="a-note"),
        signed(format="a-note", version=-1),
        signed(format="a-note", version=True),
        signed(version=3),
    ],
)
def test_another_kind_of_document_is_refused(data: bytes):
    with pytest.raises(DamagedError, match=r"^NOTE\.json: not a a-note document with a version$"):
        decode_signed(data, FORM)


def test_one_of_several_is_not_taken_for_another():
    with pytest.raises(DamagedError, match="not a a-note document"):
        decode_signed(encode_signed({}, Form("NOTE.json", "a-note", 3, "long")), ONE_OF_SEVERAL)


def test_no_document_at_all_is_damage():
    for data in (b"[]\n", b"1\n", b"{}\n"):
        with pytest.raises(DamagedError, match="its digest does not match its text"):
            decode_signed(data, FORM)


def test_a_version_from_the_future_is_told_only_of_an_intact_document():
    data = signed(format="a-note", version=4)

    with pytest.raises(UnsupportedVersionError, match=r"^NOTE\.json: format version 4; this perdure reads 3$"):
        decode_signed(data, FORM)
    with pytest.raises(DamagedError, match="its digest does not match its text"):
        decode_signed(data.replace(b'"version":4', b'"version":5'), FORM)
