"""The headers of sections, the same in versions 2 and 3: `P name size flag`, `S name size`, `K name`."""

import re
from dataclasses import dataclass
from typing import NoReturn

from perdure.interop.storage_ckpt.faults import Kind
from perdure.interop.storage_ckpt.source import MAX_LINE_BYTES, Source

MAX_SIZE = (1 << 63) - 1
"""What a 64-bit integer can count; no writer of the format knows more."""

MAX_NAME_BYTES = MAX_LINE_BYTES - 64
"""Leaves room for kind, size and flag."""

_KINDS = (b"P", b"S", b"K")
_TOKENS = {b"P": (3, 4), b"S": (3,), b"K": (2,)}
_FORMS = {b"P": "`P name size flag`", b"S": "`S name size`", b"K": "`K name`"}
_DIGITS = re.compile(rb"[0-9]+")
_LIKE_A_HEADER = re.compile(rb"[!-~]+(?: [!-~]+)+")


@dataclass(frozen=True)
class Header:
    """One header."""

    kind: str
    """`P`, `S` or `K`."""
    name: str
    """As it stands there."""
    size: int
    """How many values; 0 for a scalar."""
    has_moments: bool
    """Whether moments follow the value."""
    offset: int
    """The byte at which it begins."""


def next_header(source: Source, kinds: tuple[bytes, ...] = _KINDS) -> Header:
    """Reads the header at the position.

    Args:
        source: stands where a section begins.
        kinds: which kinds the version has.

    Raises:
        StorageFileError: it ends too early, breaks the grammar, or is none.
    """
    start = source.position
    begins_like_one = source.peek(2) in {
        *(kind + b" " for kind in kinds),
        *(kind for kind in kinds if source.left == 1),
    }
    line = source.line()
    if line is None:
        _refuse_endless(source, begins_like_one)
    if not begins_like_one:
        _refuse_foreign(source, start, line, kinds)
    return _parsed(source, start, line)


def _refuse_endless(source: Source, begins_like_one: bool) -> NoReturn:  # noqa: FBT001 - private, one caller
    start = source.position
    if not begins_like_one:
        source.refuse(Kind.TRAILING_DATA, start, f"{source.left:,} bytes follow that are no section")
    if source.left <= MAX_LINE_BYTES:
        source.refuse(Kind.TRUNCATED, start, "the file ends inside a section's header")
    source.refuse(Kind.BAD_HEADER, start, f"a section's header has no end within {MAX_LINE_BYTES:,} bytes")


def _refuse_foreign(source: Source, start: int, line: bytes, kinds: tuple[bytes, ...]) -> NoReturn:
    known = ", ".join(kind.decode() for kind in kinds)
    if _LIKE_A_HEADER.fullmatch(line):
        problem = f"a section of the kind {_shown(line.split(b' ')[0])}, known are {known}"
        source.refuse(Kind.BAD_HEADER, start, problem, "A newer noeira may have written it; convert it there.")
    problem = f"{source.size - start:,} bytes follow that are no section: {_shown(line)}"
    source.refuse(Kind.TRAILING_DATA, start, problem)


def _parsed(source: Source, start: int, line: bytes) -> Header:
    tokens = line.split(b" ")
    kind = tokens[0]
    if len(tokens) not in _TOKENS[kind] or not all(tokens):
        problem = f"the header {_shown(line)} has {len(tokens)} parts, or an empty one; expected {_FORMS[kind]}"
        source.refuse(Kind.BAD_HEADER, start, problem)
    try:
        name = tokens[1].decode("utf-8")
    except UnicodeDecodeError:
        source.refuse(Kind.BAD_HEADER, start, f"the name {_shown(tokens[1])} is not UTF-8")
    size = 0 if kind == b"K" else _size(source, start, name, tokens[2])
    flag = tokens[3] if len(tokens) == 4 else b"0"
    if flag not in (b"0", b"1"):
        source.refuse(Kind.BAD_HEADER, start, f"{name}: the flag {_shown(flag)}; expected 0 or 1")
    return Header(kind.decode(), name, size, flag == b"1", start)


def _size(source: Source, start: int, name: str, token: bytes) -> int:
    """Digits only: `int` would take `+24`, ` 24` and `2_4` as well."""
    digits = token.lstrip(b"0") or b"0"
    if not _DIGITS.fullmatch(token) or len(digits) > 19 or int(digits) > MAX_SIZE:
        source.refuse(Kind.BAD_HEADER, start, f"{name}: the size {_shown(token)}; expected digits up to {MAX_SIZE:,}")
    return int(digits)


def _shown(text: bytes) -> str:
    """A piece of a foreign file for a message: bounded, and nothing that a terminal obeys."""
    return ascii(text[:60].decode("utf-8", "backslashreplace")) + ("…" if len(text) > 60 else "")
