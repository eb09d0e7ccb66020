"""Digests: XXH3-128 as lower-case text."""

import numpy as np
import pytest

from perdure.format.digests import DIGEST_PATTERN, Digest, digest_of

EMPTY = "xxh3_128:99aa06d3014798d86001c324468d497f"


def test_a_known_value():
    # The XXH3-128 of no bytes, from the specification's reference vectors (canonical byte order).
    assert digest_of(b"") == EMPTY
    assert Digest().text() == EMPTY


def test_the_digest_of_pieces_is_the_digest_of_the_whole():
    digest = Digest()
    for piece in (b"ab", bytearray(b"c"), memoryview(b"def"), b"", np.frombuffer(b"gh", np.uint8).data):
        digest.update(piece)

    assert digest.text() == digest_of(b"abcdefgh")
    assert digest.length == 8


def test_length_counts_bytes_not_items():
    digest = Digest()
    digest.update(np.zeros(3, np.int64).data)

    assert digest.length == 24
    assert digest.text() == digest_of(bytes(24))


@pytest.mark.parametrize(
    "text",
    [
        EMPTY.upper(),
        EMPTY.replace("a", "A", 1),
        EMPTY[:-1],
        EMPTY + "0",
        EMPTY + "\n",
        EMPTY.removeprefix("xxh3_128:"),
        EMPTY.replace("xxh3_128", "xxh3_64"),
        "",
    ],
)
def test_only_one_spelling_is_a_digest(text: str):
    assert DIGEST_PATTERN.fullmatch(EMPTY)
    assert not DIGEST_PATTERN.fullmatch(text)
