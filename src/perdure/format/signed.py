"""Small documents that bear their own digest, and the name and version of their format."""

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.errors import DamagedError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.canonical import Json
from perdure.format.digests import digest_of


@dataclass(frozen=True)
class Form:
    """What every document of a kind says of itself."""

    file_name: str
    """The file it stands in, for messages."""
    format: str
    """The format's name."""
    version: int
    """The only version of it that is read and written."""
    kind: str | None = None
    """Which document of the format, where there are several."""

    def heading(self) -> dict[str, Json]:
        """The fields that say so."""
        return {"format": self.format, "version": self.version} | ({} if self.kind is None else {"kind": self.kind})


def encode_signed(document: Mapping[str, Json], form: Form) -> bytes:
    """The canonical bytes of a document with its heading and its own digest."""
    whole = {**document, **form.heading()}
    return canonical.encode({**whole, "digest": digest_of(canonical.encode(whole))})


def decode_signed(data: bytes, form: Form) -> dict[str, Json]:
    """The document without heading and digest, proven to be one that `encode_signed` wrote.

    The digest comes first: a version from the future is believed only of a document that is intact.

    Raises:
        DamagedError: not canonical, a wrong digest, or another kind of document.
        UnsupportedVersionError: an intact document of a format version that this perdure does not read.
    """
    document = canonical.decode(data, form.file_name)
    digest = document.pop("digest", None) if isinstance(document, dict) else None
    if digest is None or digest != digest_of(canonical.encode(document)):
        raise DamagedError(f"{form.file_name}: its digest does not match its text")
    name, version = document.pop("format", None), document.pop("version", None)
    kind = None if form.kind is None else document.pop("kind", None)
    if (name, kind) != (form.format, form.kind) or type(version) is not int or version < 0:
        raise DamagedError(f"{form.file_name}: not a {form.format} document with a version")
    if version != form.version:
        message = f"{form.file_name}: format version {version}; this perdure reads {form.version}"
        raise UnsupportedVersionError(message)
    return document
