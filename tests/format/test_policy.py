"""A policy's manifest reads back as what was written, and is refused if it is anything else."""

import json
from dataclasses import replace

import pytest

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.manifest import ComponentEntry, FileEntry
from perdure.format.policy import PolicyManifest, decode_policy, encode_policy, policy_digest

DIGEST = digest_of(b"state")
MANIFEST = PolicyManifest(
    env_steps=20,
    updates=2,
    boundary=2,
    components={"agent": ComponentEntry("dict", "exact-snapshot", "full", {}, {"dict": []}, DIGEST, [])},
    files={"agent.safetensors": FileEntry(8, DIGEST)},
    state_digest=DIGEST,
    created="2026-01-01T00:00:00.000+00:00",
    run_id=None,
    checkpoint="step_0000000020",
    checkpoint_digest=DIGEST,
    environment={"action_space": "Discrete(2)"},
    wrappers=("class gymnasium:TimeLimit",),
    contract={"algorithm": {"gamma": float("inf")}},
    left_out={"optimizer": "torch-optimizer"},
    launch={"kind": "trainer", "name": "ppo", "config": {}},
    arithmetic={"python": "3.11"},
    amended=("algorithm.gamma=0.9:0.8",),
)


def changed(**fields: object) -> bytes:
    """The manifest with some fields replaced, and a digest that fits."""
    document = {**json.loads(encode_policy(MANIFEST)), **fields}
    del document["digest"]
    return canonical.encode({**document, "digest": digest_of(canonical.encode(document))})


def test_it_reads_back():
    data = encode_policy(MANIFEST)

    assert decode_policy(data) == MANIFEST
    assert policy_digest(data) == json.loads(data)["digest"]


def test_every_flipped_bit_is_found():
    data = encode_policy(MANIFEST)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(DamagedError):
            decode_policy(bytes(broken))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"more": 1}, "POLICY.json: unknown field: more"),
        ({"format": "perdure-checkpoint"}, "POLICY.json: not a perdure-policy document with a version"),
        ({"kind": "checkpoint"}, "POLICY.json: not a perdure-policy document with a version"),
        ({"env_steps": -1}, "POLICY.json: a negative counter"),
        ({"state_digest": "none"}, "POLICY.json: state_digest: a malformed digest"),
        ({"checkpoint": None}, "POLICY.json: a checkpoint and its digest go together"),
        ({"wrappers": [1]}, "POLICY.json: wrappers: a value that is no text"),
        ({"left_out": {"optimizer": None}}, "POLICY.json: left_out: a value that is no text"),
        ({"files": {"../x": {"size": 1, "digest": DIGEST}}}, "cannot be a file of a checkpoint"),
    ],
)
def test_what_cannot_be_a_policy_is_damage(fields: dict[str, object], message: str):
    with pytest.raises(DamagedError, match=message.replace(".", r"\.")):
        decode_policy(changed(**fields))


def test_a_later_version_is_told_apart_from_damage():
    with pytest.raises(UnsupportedVersionError, match="format version 1; this perdure reads 0"):
        decode_policy(changed(version=1))


def test_twin_another_manifest_has_another_digest():
    assert policy_digest(encode_policy(replace(MANIFEST, env_steps=30))) != policy_digest(encode_policy(MANIFEST))
