"""The manifest: everything about a checkpoint but the arrays' bytes, as one canonical JSON document."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical, numbers
from perdure.format.canonical import Json
from perdure.format.digests import DIGEST_PATTERN, digest_of
from perdure.tree.snapshot import CLASSES

FILE_NAME = "MANIFEST.json"
FORMAT_NAME = "perdure-checkpoint"
FORMAT_VERSION = 0

MAX_BYTES = 1 << 30
"""A manifest larger than this is refused before it is read into memory."""


@dataclass(frozen=True)
class FileEntry:
    """One tensor file of the checkpoint."""

    size: int
    """Bytes."""
    digest: str
    """Digest of the whole file."""


@dataclass(frozen=True)
class ComponentEntry:
    """One component of the checkpoint."""

    adapter: str
    """Stable id of the adapter that captured it."""
    fidelity: str
    """Its continuation class."""
    reason: str
    """Why it has that class."""
    facts: Mapping[str, str]
    """Functions, classes and dtypes by path, compared by name."""
    tree: Json
    """Its structure and leaves (`perdure.format.nodes`)."""
    digest: str
    """Digest of its state."""
    made: Json
    """Where parts are not plain: pairs of a path from the component on (a list of steps) and an adapter's id."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's manifest. Field names are the names on disk; an unknown field is damage."""

    env_steps: int
    updates: int
    boundary: int
    components: Mapping[str, ComponentEntry]
    files: Mapping[str, FileEntry]
    state_digest: str
    """Digest of components and counters: what two runs compare."""
    created: str
    """Wall-clock time of the commit, ISO 8601 in UTC."""
    run_id: str | None = None
    """The run that committed it; None for a one-shot `perdure.save`."""
    parent: str | None = None
    """Digest of the run's checkpoint before this one."""
    contract: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What must be the same for a resume: section -> key -> plain value."""
    arithmetic: Mapping[str, str] = field(default_factory=dict)
    """What the numbers' last bits depend on: library versions, instruction set, devices."""
    metrics: Mapping[str, Json] | None = None
    """How far `metrics.jsonl` had come: `{"offset": bytes, "digest": digest of these bytes}`."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The finite numbers among the boundary's metrics, by which retention judges."""
    amended: Sequence[str] = ()
    """Differences from the run's first contract that somebody accepted, in order: `KEY=OLD:NEW` each."""
    trained_s: float = 0.0
    """Seconds of training until here, those before earlier resumes included, pauses between them not."""

    @property
    def fidelity(self) -> str:
        """The continuation class: the weakest of the components'."""
        return max((entry.fidelity for entry in self.components.values()), key=CLASSES.index, default=CLASSES[0])

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensor files."""
        return sum(entry.size for entry in self.files.values())


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest's canonical bytes, which bear their own digest."""
    parts = {name: canonical.encode(value)[:-1] for name, value in _document(manifest).items()}
    digest = digest_of(_joined(parts))
    return _joined({**parts, "digest": f'"{digest}"'.encode()})


def _joined(parts: Mapping[str, bytes]) -> bytes:
    """What `canonical.encode` makes of an object whose values are encoded already."""
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), parts[name]) for name in sorted(parts)) + b"}\n"


_OWN_DIGEST = re.compile(rb',"digest":"(xxh3_128:[0-9a-f]{32})"(?=,"env_steps":)')


def manifest_digest(data: bytes) -> str:
    """The digest that an encoded manifest bears, which names the whole checkpoint."""
    return canonical.decode(data, FILE_NAME)["digest"] if (own := _own_digest(data)) is None else own[1].decode()


def _own_digest(data: bytes) -> re.Match[bytes] | None:
    """Where a canonical manifest bears its own digest, found without parsing.

    Fields are sorted and quotes inside of texts are escaped, so the last match is the manifest's own field.
    """
    return next(reversed(list(_OWN_DIGEST.finditer(data))), None)


def _document(manifest: Manifest) -> dict[str, Json]:
    document: dict[str, Json] = {f.name: getattr(manifest, f.name) for f in fields(manifest)}
    document["components"] = {name: dict(vars(entry)) for name, entry in manifest.components.items()}
    document["files"] = {name: dict(vars(entry)) for name, entry in manifest.files.items()}
    document["contract"] = encode_contract(manifest.contract)
    document["amended"] = list(manifest.amended)
    return {**document, "format": FORMAT_NAME, "version": FORMAT_VERSION}


def decode_manifest(data: bytes) -> Manifest:
    """The manifest in `data`, proven to be what `encode_manifest` wrote.

    Its own digest comes first: a version from the future is believed only of a document that is intact.

    Raises:
        DamagedError: not canonical, a wrong digest, a missing, unknown or malformed field.
        UnsupportedVersionError: an intact document of a format version that this perdure does not read.
    """
    document = canonical.decode(data, FILE_NAME)
    digest = document.pop("digest", None) if isinstance(document, dict) else None
    own = _own_digest(data)
    rest = canonical.encode(document) if own is None else data[: own.start()] + data[own.end() :]
    if digest is None or digest != digest_of(rest):
        raise DamagedError(f"{FILE_NAME}: its digest does not match its text")
    format_name, version = document.pop("format", None), document.pop("version", None)
    if format_name != FORMAT_NAME or type(version) is not int or version < 0:
        raise DamagedError(f"{FILE_NAME}: not a {FORMAT_NAME} document with a version")
    if version != FORMAT_VERSION:
        message = f"{FILE_NAME}: format version {version}; this perdure reads {FORMAT_VERSION}"
        raise UnsupportedVersionError(message)
    return _checked(document)


_TYPES: dict[str, tuple[type, ...]] = {
    "env_steps": (int,),
    "updates": (int,),
    "boundary": (int,),
    "components": (dict,),
    "files": (dict,),
    "state_digest": (str,),
    "created": (str,),
    "run_id": (str, type(None)),
    "parent": (str, type(None)),
    "contract": (dict,),
    "arithmetic": (dict,),
    "metrics": (dict, type(None)),
    "scores": (dict,),
    "amended": (list,),
    "trained_s": (int, float),
}
_COMPONENT_TYPES: dict[str, tuple[type, ...]] = {
    "adapter": (str,),
    "fidelity": (str,),
    "reason": (str,),
    "facts": (dict,),
    "tree": (type(None), bool, int, float, str, dict),
    "digest": (str,),
    "made": (list,),
}
_FILE_TYPES: dict[str, tuple[type, ...]] = {"size": (int,), "digest": (str,)}


def _checked(document: dict[str, Json]) -> Manifest:
    check_fields(document, _TYPES, FILE_NAME)
    if min(document["env_steps"], document["updates"], document["boundary"]) < 0:
        raise DamagedError(f"{FILE_NAME}: a negative counter")
    check_digest(document["state_digest"], f"{FILE_NAME}: state_digest")
    if document["parent"] is not None:
        check_digest(document["parent"], f"{FILE_NAME}: parent")
    check_texts(document["arithmetic"], f"{FILE_NAME}: arithmetic")
    _check_metrics(document)
    if not all(isinstance(text, str) for text in document["amended"]):
        raise DamagedError(f"{FILE_NAME}: amended: an acceptance is text")
    if not 0 <= document["trained_s"] < math.inf:
        raise DamagedError(f"{FILE_NAME}: trained_s: seconds of training are 0 or more")
    components, files = decode_entries(document, FILE_NAME)
    contract, amended = decode_contract(document["contract"], FILE_NAME), tuple(document["amended"])
    return Manifest(**{**document, "components": components, "files": files, "contract": contract, "amended": amended})


def decode_entries(document: Mapping[str, Json], place: str) -> tuple[dict[str, ComponentEntry], dict[str, FileEntry]]:
    """The components and files of a document.

    Raises:
        DamagedError: one is malformed; the message begins with `place`.
    """
    components = {name: _component(name, entry, place) for name, entry in document["components"].items()}
    return components, {name: _file(name, entry, place) for name, entry in document["files"].items()}


def _component(name: str, entry: Json, document: str) -> ComponentEntry:
    place = f"{document}: component {name[:80]}"
    check_fields(entry, _COMPONENT_TYPES, place)
    check_digest(entry["digest"], place)
    check_texts(entry["facts"], f"{place}: facts")
    if entry["fidelity"] not in CLASSES:
        raise DamagedError(f"{place}: unknown class {entry['fidelity'][:80]!r}")
    return ComponentEntry(**entry)


def _file(name: str, entry: Json, document: str) -> FileEntry:
    place = f"{document}: file {name[:80]!r}"
    check_fields(entry, _FILE_TYPES, place)
    check_digest(entry["digest"], place)
    if "/" in name or "\0" in name or name.startswith(".") or not name or entry["size"] < 0:
        raise DamagedError(f"{place} cannot be a file of a checkpoint")
    return FileEntry(**entry)


def _check_metrics(document: dict[str, Json]) -> None:
    if document["metrics"] is not None:
        place = f"{FILE_NAME}: metrics"
        check_fields(document["metrics"], {"offset": (int,), "digest": (str,)}, place)
        check_digest(document["metrics"]["digest"], place)
        if document["metrics"]["offset"] < 0:
            raise DamagedError(f"{place}: a negative offset")
    if any(type(score) not in (int, float) for score in document["scores"].values()):
        raise DamagedError(f"{FILE_NAME}: scores: a score is a number")


def check_digest(text: str, place: str) -> None:
    """Refuses what is no spelling of a digest.

    Raises:
        DamagedError: it is none.
    """
    if not DIGEST_PATTERN.fullmatch(text):
        raise DamagedError(f"{place}: a malformed digest")


def check_texts(texts: Mapping[str, Json], place: str) -> None:
    """Refuses values that are no text.

    Raises:
        DamagedError: there is one.
    """
    if not all(isinstance(text, str) for text in texts.values()):
        raise DamagedError(f"{place}: a value that is no text")


def encode_contract(contract: Mapping[str, Mapping[str, Any]]) -> Json:
    """A contract as JSON, its numbers exact."""
    return {
        section: {key: numbers.encode_plain(value) for key, value in keys.items()} for section, keys in contract.items()
    }


def decode_contract(document: Json, place: str) -> dict[str, dict[str, Any]]:
    """The contract in a document; the inverse of `encode_contract`.

    Raises:
        DamagedError: not two levels of objects with plain values.
    """
    if not isinstance(document, dict) or not all(isinstance(keys, dict) for keys in document.values()):
        raise DamagedError(f"{place}: the contract is malformed")
    try:
        return {
            section: {key: numbers.decode_plain(value) for key, value in keys.items()}
            for section, keys in document.items()
        }
    except DamagedError as error:
        raise DamagedError(f"{place}: the contract is malformed: {error}") from error


def check_fields(entry: Any, types: Mapping[str, tuple[type, ...]], place: str) -> None:
    """Refuses an object that has not exactly these fields, of these types.

    Raises:
        DamagedError: the message names the field.
    """
    if not isinstance(entry, dict):
        raise DamagedError(f"{place}: not an object")
    for name in sorted(types.keys() ^ entry.keys()):
        raise DamagedError(f"{place}: {'a field is missing' if name in types else 'unknown field'}: {name[:80]}")
    for name, allowed in types.items():
        if type(entry[name]) not in allowed:
            raise DamagedError(f"{place}: field {name} is a {type(entry[name]).__name__}")
