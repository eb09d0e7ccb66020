"""The manifest: comes back equal, proves itself, and any other document is refused with the field named."""

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.manifest import (
    ComponentEntry,
    FileEntry,
    Manifest,
    decode_contract,
    decode_manifest,
    encode_contract,
    encode_manifest,
    manifest_digest,
)

DIGEST = digest_of(b"something")

MANIFEST = Manifest(
    env_steps=2**60,
    updates=7,
    boundary=3,
    components={
        "rng": ComponentEntry(
            "list", "exact-snapshot", "full state captured", {}, {"list": [1]}, DIGEST, [[["rng", 0], "x-number"]]
        ),
        "envs": ComponentEntry("x-envs", "exact-replay", "envs: opaque", {"fn": "function a:b"}, None, DIGEST, []),
    },
    files={"rng.safetensors": FileEntry(128, DIGEST)},
    state_digest=DIGEST,
    created="2026-01-02T03:04:05.678+00:00",
    run_id="ab" * 16,
    parent=DIGEST,
    contract={"algorithm": {"lr": 0.1, "big": 2**70, "nan": float("inf"), "name": "a"}, "seed": {"seed": 1}},
    arithmetic={"python": "3.11"},
    metrics={"offset": 12, "digest": DIGEST},
    scores={"return": 0.5, "episodes": 3},
    amended=("algorithm.lr=0.2:0.1", "env.id='a b':nothing"),
    trained_s=3600.25,
)


def document() -> dict[str, Any]:
    """The manifest's JSON without its digest."""
    whole = json.loads(encode_manifest(MANIFEST))
    del whole["digest"]
    return whole


def signed(value: Any) -> bytes:
    """A document with the digest that belongs to it, whatever it says."""
    return canonical.encode({**value, "digest": digest_of(canonical.encode(value))})


def test_a_manifest_comes_back_equal():
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST


def test_a_minimal_manifest_comes_back_equal():
    minimal = Manifest(0, 0, 0, {}, {}, DIGEST, "2026-01-02T03:04:05.678+00:00")

    assert decode_manifest(encode_manifest(minimal)) == minimal


def test_the_bytes_are_canonical_and_bear_their_own_digest():
    data = encode_manifest(MANIFEST)

    assert canonical.encode(json.loads(data)) == data
    assert json.loads(data)["digest"] == digest_of(canonical.encode(document())) == manifest_digest(data)
    assert signed(document()) == data


def test_the_class_is_the_weakest_of_the_components():
    assert MANIFEST.fidelity == "exact-replay"
    assert replace(MANIFEST, components={}).fidelity == "exact-snapshot"


def test_the_size_is_that_of_all_tensor_files():
    assert replace(MANIFEST, files={"a": FileEntry(3, DIGEST), "b": FileEntry(4, DIGEST)}).size_bytes == 7


OWN = sorted(name for name in document() if name not in ("format", "version"))


@pytest.mark.parametrize("name", OWN)
def test_a_missing_field_is_refused(name: str):
    changed = document()
    del changed[name]

    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed(changed))

    assert str(caught.value) == f"MANIFEST.json: a field is missing: {name}"


MISTYPED = {
    **dict.fromkeys(OWN, 1.5),
    "env_steps": True,
    "updates": "7",
    "trained_s": "7",
    "components": [],
    "state_digest": None,
    "run_id": 5,
    "metrics": "12",
}


@pytest.mark.parametrize("name", OWN)
def test_a_mistyped_field_is_refused(name: str):
    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed({**document(), name: MISTYPED[name]}))

    assert str(caught.value) == f"MANIFEST.json: field {name} is a {type(MISTYPED[name]).__name__}"


@pytest.mark.parametrize("name", ["adapter", "fidelity", "reason", "facts", "tree", "digest", "made"])
def test_a_field_of_a_component_is_neither_missing_nor_mistyped_nor_doubled(name: str):
    mistyped: Any = {} if name == "made" else []
    for entry, complaint in (
        ({key: value for key, value in document()["components"]["rng"].items() if key != name}, "a field is missing:"),
        ({**document()["components"]["rng"], name: mistyped}, f"field {name} is a {type(mistyped).__name__}"),
        ({**document()["components"]["rng"], f"{name}s": 1}, "unknown field:"),
    ):
        changed = {**document(), "components": {"rng": entry}}
        with pytest.raises(DamagedError, match=rf"^MANIFEST\.json: component rng: {complaint}"):
            decode_manifest(signed(changed))


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"size": 1}, "file 'a': a field is missing: digest"),
        ({"digest": DIGEST}, "file 'a': a field is missing: size"),
        ({"size": 1, "digest": DIGEST, "mode": 1}, "file 'a': unknown field: mode"),
        ({"size": "1", "digest": DIGEST}, "file 'a': field size is a str"),
        ({"size": 1, "digest": 2}, "file 'a': field digest is a int"),
        ({"size": -1, "digest": DIGEST}, "file 'a' cannot be a file of a checkpoint"),
        ([], "file 'a': not an object"),
    ],
)
def test_a_malformed_file_entry_is_refused(entry: Any, complaint: str):
    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed({**document(), "files": {"a": entry}}))

    assert str(caught.value) == f"MANIFEST.json: {complaint}"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", ".hidden", "..", "."])
def test_a_file_outside_of_the_checkpoint_is_refused(name: str):
    with pytest.raises(DamagedError, match="cannot be a file of a checkpoint"):
        decode_manifest(signed({**document(), "files": {name: {"size": 1, "digest": DIGEST}}}))


def test_an_unknown_field_is_refused():
    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed({**document(), "comment": "hello"}))

    assert str(caught.value) == "MANIFEST.json: unknown field: comment"


@pytest.mark.parametrize(
    ("component", "value", "complaint"),
    [
        ("fidelity", "exact", "unknown class 'exact'"),
        ("digest", DIGEST.upper(), "a malformed digest"),
        ("digest", DIGEST[:-1], "a malformed digest"),
        ("digest", DIGEST + "\n", "a malformed digest"),
    ],
)
def test_an_unknown_class_and_a_malformed_digest_of_a_component_are_refused(component: str, value: str, complaint: str):
    changed = document()
    changed["components"]["rng"][component] = value

    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed(changed))

    assert str(caught.value) == f"MANIFEST.json: component rng: {complaint}"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"state_digest": DIGEST.upper()}, id="state digest"),
        pytest.param({"parent": DIGEST.upper()}, id="parent"),
        pytest.param({"files": {"a.safetensors": {"size": 1, "digest": DIGEST.upper()}}}, id="file"),
        pytest.param({"metrics": {"offset": 12, "digest": DIGEST.upper()}}, id="metrics"),
        pytest.param({"metrics": {"offset": "12", "digest": DIGEST}}, id="metrics offset"),
        pytest.param({"metrics": {"offset": -1, "digest": DIGEST}}, id="negative metrics offset"),
        pytest.param({"metrics": {}}, id="empty metrics"),
        pytest.param({"arithmetic": {"python": 3}}, id="arithmetic"),
        pytest.param({"env_steps": -1}, id="negative env_steps"),
        pytest.param({"scores": {"return": "high"}}, id="score"),
        pytest.param({"scores": {"done": True}}, id="score that is no number"),
        pytest.param({"amended": ["a=1:2", None]}, id="acceptance that is no text"),
        pytest.param({"trained_s": -0.5}, id="negative time"),
    ],
)
def test_malformed_values_below_the_top_level_are_refused(change: dict[str, Any]):
    with pytest.raises(DamagedError, match=r"^MANIFEST\.json: "):
        decode_manifest(signed({**document(), **change}))


def test_facts_are_texts():
    changed = document()
    changed["components"]["envs"]["facts"] = {"fn": 1}

    with pytest.raises(DamagedError, match=r"^MANIFEST\.json: component envs: "):
        decode_manifest(signed(changed))


@pytest.mark.parametrize("data", [b"[]\n", b"1\n", b"{}\n", b'{"format":"other","version":0}\n'])
def test_a_document_without_a_digest_is_refused(data: bytes):
    with pytest.raises(DamagedError) as caught:
        decode_manifest(data)

    assert str(caught.value) == "MANIFEST.json: its digest does not match its text"


@pytest.mark.parametrize("value", [{}, {"format": "other", "version": 0}, {"format": "perdure-checkpoint"}])
def test_another_document_is_refused(value: dict[str, Any]):
    with pytest.raises(DamagedError) as caught:
        decode_manifest(signed(value))

    assert str(caught.value) == "MANIFEST.json: not a perdure-checkpoint document with a version"


def test_a_version_from_the_future_is_told_apart_from_damage():
    """And is believed of an intact document only."""
    future = {**document(), "version": 99, "surprise": True}
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_manifest(signed(future))
    with pytest.raises(DamagedError) as damaged:
        decode_manifest(canonical.encode({**future, "digest": DIGEST}))

    assert str(caught.value) == "MANIFEST.json: format version 99; this perdure reads 0"
    assert type(damaged.value) is DamagedError


@pytest.mark.parametrize("version", [False, 0.0, "0", None, -1])
def test_a_version_is_a_natural_number(version: Any):
    with pytest.raises(DamagedError):
        decode_manifest(signed({**document(), "version": version}))


@pytest.mark.parametrize("digest", [DIGEST, None, "", digest_of(b"").upper()])
def test_a_digest_that_does_not_match_is_refused(digest: str | None):
    with pytest.raises(DamagedError) as caught:
        decode_manifest(canonical.encode({**document(), "digest": digest}))

    assert str(caught.value) == "MANIFEST.json: its digest does not match its text"


def test_an_upper_case_hex_digit_in_its_own_digest_is_refused():
    data = encode_manifest(MANIFEST)
    digest = manifest_digest(data)
    letter = next(letter for letter in digest.removeprefix("xxh3_128:") if letter in "abcdef")
    changed = "xxh3_128:" + digest.removeprefix("xxh3_128:").replace(letter, letter.upper(), 1)

    with pytest.raises(DamagedError, match="its digest does not match its text"):
        decode_manifest(data.replace(digest.encode(), changed.encode()))


def test_every_flipped_bit_is_damage_and_none_reads_like_a_version_from_the_future():
    """A run steps back over damage, but never over a newer perdure's checkpoint: a flip must not look like one."""
    data = encode_manifest(MANIFEST)
    wrong: dict[int, str] = {}
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError) as caught:
            decode_manifest(bytes(flipped))
        if isinstance(caught.value, UnsupportedVersionError):
            wrong[at] = str(caught.value)

    assert wrong == {}


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_cut_manifest_is_damage(length: int):
    with pytest.raises(DamagedError):
        decode_manifest(encode_manifest(MANIFEST)[:length])


def test_a_contract_comes_back_exact():
    contract = {"a": {"x": 2**70, "y": -0.0, "z": None, "t": "text", "b": True}, "empty": {}}

    back = decode_contract(json.loads(json.dumps(encode_contract(contract))), "run.json")

    assert repr(back) == repr(contract)


@pytest.mark.parametrize("value", [[], {"a": 1}, {"a": []}, "text", None])
def test_a_contract_has_two_levels(value: Any):
    with pytest.raises(DamagedError, match=r"^run\.json: the contract is malformed$"):
        decode_contract(value, "run.json")


@pytest.mark.parametrize("value", [[1], {"b": 1}, {}])
def test_a_contract_holds_plain_values(value: Any):
    with pytest.raises(DamagedError, match=r"^run\.json: the contract is malformed: "):
        decode_contract({"a": {"key": value}}, "run.json")
