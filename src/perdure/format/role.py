"""`ROLE.json`: which policy has a role now, and every promotion that led there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from perdure.errors import DamagedError
from perdure.format.canonical import Json
from perdure.format.manifest import check_digest, check_fields
from perdure.format.signed import Form, decode_signed, encode_signed

FILE_NAME = "ROLE.json"
_FORM = Form(FILE_NAME, "perdure-role", version=0)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Promotion:
    """One promotion. Field names are the names on disk; an unknown field is damage."""

    at: str
    """When, ISO 8601 in UTC."""
    policy: str
    """The policy's directory, beside the file."""
    digest: str
    """The policy's digest."""
    run: str | None
    """The run's directory, as it was then; None: the checkpoint stood alone."""
    run_id: str | None
    """The run's id."""
    checkpoint: str
    """The checkpoint's name."""
    checkpoint_digest: str
    """The checkpoint's digest."""
    env_steps: int
    """Its env-steps."""
    contract: str
    """Digest of the contract that the policy bears."""
    score: Mapping[str, Json] | None
    """What it was chosen by: `{"metric", "mode", "value"}`; None: not by a metric."""
    note: str | None
    """Why."""
    supersedes: str | None
    """The policy that had the role before."""


def is_role_name(text: str) -> bool:
    """Whether a text can be the name of a role, or of a policy in it: a folder's name, no hidden one."""
    return _NAME.fullmatch(text) is not None


def encode_role(role: str, history: Sequence[Promotion]) -> bytes:
    """The document's canonical bytes, which bear their own digest."""
    return encode_signed({"role": role, "history": [dict(vars(promotion)) for promotion in history]}, _FORM)


def decode_role(data: bytes) -> tuple[str, tuple[Promotion, ...]]:
    """The role's name and its promotions, the oldest first, proven to be what `encode_role` wrote.

    Raises:
        DamagedError: not canonical, a wrong digest, a missing, unknown or malformed field.
        UnsupportedVersionError: an intact document of a format version that this perdure does not read.
    """
    document = decode_signed(data, _FORM)
    check_fields(document, {"role": (str,), "history": (list,)}, FILE_NAME)
    if not document["history"]:
        raise DamagedError(f"{FILE_NAME}: no promotion in it")
    history = tuple(_promotion(entry, number) for number, entry in enumerate(document["history"], start=1))
    return document["role"], history


_TEXT, _TEXT_OR_NONE = (str,), (str, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("at", "policy", "digest", "checkpoint", "checkpoint_digest", "contract"), _TEXT),
    **dict.fromkeys(("run", "run_id", "note", "supersedes"), _TEXT_OR_NONE),
    "env_steps": (int,),
    "score": (dict, type(None)),
}
_SCORE: dict[str, tuple[type, ...]] = {"metric": (str,), "mode": (str,), "value": (int, float)}


def _promotion(entry: Any, number: int) -> Promotion:
    place = f"{FILE_NAME}: promotion {number}"
    if not isinstance(entry, dict):
        raise DamagedError(f"{place}: not a promotion")
    check_fields(entry, _TYPES, place)
    for name in ("digest", "checkpoint_digest", "contract"):
        check_digest(entry[name], f"{place}: {name}")
    if not is_role_name(entry["policy"]):
        raise DamagedError(f"{place}: policy {entry['policy'][:80]!r} is no name of a folder beside it")
    if entry["score"] is not None:
        check_fields(entry["score"], _SCORE, f"{place}: score")
    return Promotion(**{field.name: entry[field.name] for field in fields(Promotion)})
