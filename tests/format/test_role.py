"""`ROLE.json`: proven by its own digest; whatever else is there is refused by name."""

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.role import Promotion, decode_role, encode_role, is_role_name

DIGEST = digest_of(b"something")
FIRST = Promotion(
    at="2026-01-02T03:04:05.678+00:00",
    policy="step_0000000020-0a1b2c3d",
    digest=DIGEST,
    run="/runs/x",
    run_id="0a1b2c3d" * 4,
    checkpoint="step_0000000020",
    checkpoint_digest=DIGEST,
    env_steps=20,
    contract=DIGEST,
    score={"metric": "return", "mode": "max", "value": 9.0},
    note="ü",
    supersedes=None,
)
SECOND = replace(FIRST, policy="other", run=None, run_id=None, score=None, note=None, supersedes=FIRST.policy)


def test_it_comes_back_equal():
    assert decode_role(encode_role("production", [FIRST, SECOND])) == ("production", (FIRST, SECOND))


def test_every_flipped_bit_and_every_cut_is_damage():
    data = encode_role("production", [FIRST])
    for at in range(0, 8 * len(data), 3):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError, match=r"ROLE\.json"):
            decode_role(bytes(flipped))
    for length in range(0, len(data), 7):
        with pytest.raises(DamagedError, match=r"ROLE\.json"):
            decode_role(data[:length])


def signed(**change: Any) -> bytes:
    document = {**json.loads(encode_role("production", [FIRST])), **change}
    del document["digest"]
    return canonical.encode({**document, "digest": digest_of(canonical.encode(document))})


def changed(**change: Any) -> list[dict[str, Any]]:
    entry = {**vars(FIRST), **change}
    return [{name: value for name, value in entry.items() if value is not ...}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (signed(format="other"), "not a perdure-role document"),
        (signed(version=True), "not a perdure-role document"),
        (signed(more=1), "unknown field: more"),
        (signed(history=[]), "no promotion in it"),
        (signed(history=[5]), "promotion 1: not a promotion"),
        (signed(history=changed(note=...)), "promotion 1: a field is missing: note"),
        (signed(history=changed(env_steps="20")), "promotion 1: field env_steps is a str"),
        (signed(history=changed(digest="xxh3_128:1")), "promotion 1: digest: a malformed digest"),
        (signed(history=changed(policy="../../elsewhere")), "promotion 1: policy '../../elsewhere' is no name"),
        (signed(history=changed(policy=".hidden")), "is no name of a folder beside it"),
        (signed(history=changed(score={"metric": "return"})), "promotion 1: score: a field is missing"),
        (b"[]\n", "its digest does not match its text"),
    ],
)
def test_another_document_with_a_digest_of_its_own_is_refused(data: bytes, message: str):
    with pytest.raises(DamagedError, match=r"^ROLE\.json") as caught:
        decode_role(data)

    assert message in str(caught.value)


def test_a_version_from_the_future_is_told_apart():
    with pytest.raises(UnsupportedVersionError, match="format version 1; this perdure reads 0"):
        decode_role(signed(version=1))


def test_a_role_s_name_is_one_folder():
    assert all(map(is_role_name, ["production", "a", "v1.2-rc_3", "0"]))
    assert not any(map(is_role_name, ["", ".", "..", ".hidden", "a/b", "a b", "ü", "a\n", "x" * 201]))
