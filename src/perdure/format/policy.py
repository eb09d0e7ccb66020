"""The manifest of a policy: weights for inference, what they were trained for, and where they came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.canonical import Json
from perdure.format.manifest import (
    ComponentEntry,
    FileEntry,
    check_digest,
    check_fields,
    check_texts,
    decode_contract,
    decode_entries,
    encode_contract,
)
from perdure.format.signed import Form, decode_signed, encode_signed

FILE_NAME = "POLICY.json"
_FORM = Form(FILE_NAME, "perdure-policy", version=0, kind="policy")


@dataclass(frozen=True)
class PolicyManifest:
    """A policy's manifest. Field names are the names on disk; an unknown field is damage."""

    env_steps: int
    updates: int
    boundary: int
    components: Mapping[str, ComponentEntry]
    files: Mapping[str, FileEntry]
    state_digest: str
    """Digest of components and counters."""
    created: str
    """Wall-clock time of the export, ISO 8601 in UTC."""
    run_id: str | None
    """The run that it comes from."""
    checkpoint: str | None
    """The name of the checkpoint that holds the very same components; None if there was none."""
    checkpoint_digest: str | None
    """That checkpoint's digest."""
    environment: Mapping[str, str]
    """What the components were trained to see and do, by key: spaces, id and arguments, levels by content."""
    wrappers: Sequence[str]
    """The classes around one environment, the outermost first."""
    contract: Mapping[str, Mapping[str, Any]]
    """The run's contract, without what concerns components that are left out."""
    left_out: Mapping[str, str]
    """The run's other components -> their adapters: what a resume would need and a policy has not."""
    launch: Mapping[str, Json] | None = None
    """The record of the trainer that trained it; None: a script of somebody's own."""
    arithmetic: Mapping[str, str] = field(default_factory=dict)
    """Versions and machine, as in a checkpoint."""
    amended: Sequence[str] = ()
    """Differences from the run's first contract that somebody accepted."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensor files."""
        return sum(entry.size for entry in self.files.values())


def encode_policy(manifest: PolicyManifest) -> bytes:
    """The manifest's canonical bytes, which bear their own digest."""
    document: dict[str, Json] = {f.name: getattr(manifest, f.name) for f in fields(manifest)}
    for name in ("components", "files"):
        document[name] = {key: dict(vars(entry)) for key, entry in document[name].items()}
    document["contract"] = encode_contract(manifest.contract)
    for name in ("wrappers", "amended"):
        document[name] = list(document[name])
    return encode_signed(document, _FORM)


def policy_digest(data: bytes) -> str:
    """The digest that an encoded manifest bears, which names the whole policy."""
    return canonical.decode(data, FILE_NAME)["digest"]


_TYPES: dict[str, tuple[type, ...]] = {
    "env_steps": (int,),
    "updates": (int,),
    "boundary": (int,),
    "components": (dict,),
    "files": (dict,),
    "state_digest": (str,),
    "created": (str,),
    "run_id": (str, type(None)),
    "checkpoint": (str, type(None)),
    "checkpoint_digest": (str, type(None)),
    "environment": (dict,),
    "wrappers": (list,),
    "contract": (dict,),
    "left_out": (dict,),
    "launch": (dict, type(None)),
    "arithmetic": (dict,),
    "amended": (list,),
}


def decode_policy(data: bytes) -> PolicyManifest:
    """The manifest in `data`, proven to be what `encode_policy` wrote.

    Raises:
        DamagedError: not canonical, a wrong digest, a missing, unknown or malformed field.
        UnsupportedVersionError: an intact document of a format version that this perdure does not read.
    """
    document = decode_signed(data, _FORM)
    return _checked(document)


def _checked(document: dict[str, Json]) -> PolicyManifest:
    check_fields(document, _TYPES, FILE_NAME)
    if min(document["env_steps"], document["updates"], document["boundary"]) < 0:
        raise DamagedError(f"{FILE_NAME}: a negative counter")
    check_digest(document["state_digest"], f"{FILE_NAME}: state_digest")
    if (document["checkpoint"] is None) != (document["checkpoint_digest"] is None):
        raise DamagedError(f"{FILE_NAME}: a checkpoint and its digest go together")
    if document["checkpoint_digest"] is not None:
        check_digest(document["checkpoint_digest"], f"{FILE_NAME}: checkpoint_digest")
    for name in ("environment", "left_out", "arithmetic"):
        check_texts(document[name], f"{FILE_NAME}: {name}")
    for name in ("wrappers", "amended"):
        check_texts({str(number): text for number, text in enumerate(document[name])}, f"{FILE_NAME}: {name}")
    components, files = decode_entries(document, FILE_NAME)
    contract = decode_contract(document["contract"], FILE_NAME)
    listed = {name: tuple(document[name]) for name in ("wrappers", "amended")}
    return PolicyManifest(**{**document, **listed, "components": components, "files": files, "contract": contract})
