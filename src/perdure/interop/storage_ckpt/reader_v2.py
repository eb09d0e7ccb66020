"""Version 2 of storage-ckpt: the same headers, one decimal number a line, `key=value` lines behind the last section."""

from typing import NoReturn

import numpy as np

from perdure.interop.storage_ckpt.decimal_floats import float32_of, is_float
from perdure.interop.storage_ckpt.faults import Kind
from perdure.interop.storage_ckpt.headers import MAX_NAME_BYTES, Header, next_header
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint
from perdure.interop.storage_ckpt.source import Source

SUSPECT_BYTES = (1 << 31) - 4096
"""At this size the writers of version 2 ended files without a word: one write of Linux takes no more."""

SUSPECT = (
    "suspect: files of version 2 were cut without a word at 2^31 - 4096 bytes, and this one is as large; "
    "what stands behind may be lost."
)

_NUMBER_BYTES = 64
_KINDS = (b"P", b"S")
_LEAST_LINE_BYTES = 2


def read_v2(source: Source) -> StorageCheckpoint:
    """Reads what follows the first line.

    Raises:
        StorageFileError: it is not well formed; a last line without its newline is ambiguous and refused.
    """
    sections: list[Section] = []
    scalars: dict[str, float] = {}
    while source.left:
        if _at_scalar(source):
            _add_scalar(source, scalars)
            continue
        header = next_header(source, _KINDS)
        if scalars:
            problem = f"the section {header.kind} {header.name} follows a scalar; scalars stand behind all sections"
            source.refuse(Kind.SECTION_ORDER, header.offset, problem)
        sections.append(_section(source, header))
    notes = (SUSPECT,) if source.size >= SUSPECT_BYTES else ()
    return StorageCheckpoint(source.path, 2, tuple(sections), scalars, notes)


def _section(source: Source, header: Header) -> Section:
    count = 3 if header.has_moments else 1
    wanted = count * header.size
    if wanted * _LEAST_LINE_BYTES > source.left + 1:  # the last newline may be missing: that is another fault
        problem = f"{header.name} announces {wanted:,} numbers; the file has {source.left:,} bytes left"
        source.refuse(Kind.TRUNCATED, header.offset, problem)
    arrays = [_numbers(source, header, is_last=at == count - 1) for at in range(count)]
    return Section("P" if header.kind == "P" else "S", header.name, *arrays, offset=header.offset)


def _numbers(source: Source, header: Header, *, is_last: bool) -> np.ndarray:
    texts: list[bytes] = []
    for at in range(header.size):
        start = source.position
        line = source.line(_NUMBER_BYTES)
        if line is None:
            _refuse_endless(source, header, is_needed_last=is_last and at == header.size - 1)
        elif not is_float(line):
            problem = f"{header.name}: {line.decode('latin-1')!a} is no number (value {at + 1:,} of {header.size:,})"
            source.refuse(Kind.BAD_FLOAT, start, problem)
        else:
            texts.append(line)
    values = float32_of(texts)
    _refuse_beyond(source, header, texts, values)
    return values


def _refuse_endless(source: Source, header: Header, *, is_needed_last: bool) -> NoReturn:
    start = source.position
    if source.left > _NUMBER_BYTES:
        source.refuse(Kind.BAD_FLOAT, start, f"{header.name}: a line of more than {_NUMBER_BYTES} bytes is no number")
    if is_needed_last and source.left:
        _refuse_ambiguous(source, start)
    source.refuse(Kind.TRUNCATED, start, f"the file ends inside {header.name}, which announces {header.size:,} values")


def _refuse_beyond(source: Source, header: Header, texts: list[bytes], values: np.ndarray) -> None:
    """A finite number that float32 cannot hold was not written by anybody who had float32."""
    for at in np.flatnonzero(np.isinf(values)):
        if b"inf" not in texts[at]:
            problem = f"{header.name}: {texts[at].decode()} (value {at + 1:,}) is beyond the range of float32"
            source.refuse(Kind.BAD_FLOAT, header.offset, problem)


def _refuse_ambiguous(source: Source, start: int) -> NoReturn:
    problem = f"the last line, {source.peek(_NUMBER_BYTES).decode('latin-1')!a}, has no newline: it may be cut"
    source.refuse(
        Kind.AMBIGUOUS, start, problem, "Take a whole copy; if you know the line to be whole, end it yourself."
    )


def _at_scalar(source: Source) -> bool:
    """Whether the next line is `key=value`: a header has a space where a key has none."""
    key, equals, _ = source.peek(MAX_NAME_BYTES).partition(b"\n")[0].partition(b"=")
    return bool(equals and key) and b" " not in key


def _add_scalar(source: Source, scalars: dict[str, float]) -> None:
    start = source.position
    line = source.line()
    if line is None:
        _refuse_ambiguous(source, start)
    key, _, text = line.partition(b"=")
    if not is_float(text):
        source.refuse(Kind.BAD_FLOAT, start, f"{line.decode('latin-1')!a}: no number behind the `=`")
    try:
        name = key.decode("utf-8")
    except UnicodeDecodeError:
        source.refuse(Kind.BAD_HEADER, start, f"the key {key.decode('latin-1')!a} is not UTF-8")
    if name in scalars:
        source.refuse(Kind.DUPLICATE_NAME, start, f"the scalar {name} stands there twice")
    scalars[name] = float(text)
