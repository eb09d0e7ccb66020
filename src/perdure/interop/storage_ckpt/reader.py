"""Reads files of storage-ckpt strictly: version 3 here, version 2 in `reader_v2.py`; nothing is guessed or repaired."""

import os
import struct
from pathlib import Path

import numpy as np

from perdure.interop.storage_ckpt.faults import Kind
from perdure.interop.storage_ckpt.headers import Header, next_header
from perdure.interop.storage_ckpt.reader_v2 import read_v2
from perdure.interop.storage_ckpt.sections import FLOAT32, SCALAR, Section, StorageCheckpoint
from perdure.interop.storage_ckpt.source import Source

MAGIC = b"storage-ckpt v"
V2, V3 = MAGIC + b"2", MAGIC + b"3"

_FIRST_LINE_BYTES = 64
_SCALAR_BYTES = 8


def is_storage_ckpt(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as files of storage-ckpt do, of whatever version; its name does not count."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


def read(path: str | os.PathLike[str]) -> StorageCheckpoint:
    """Reads a file of version 3 or 2.

    The arrays of version 3 are read-only views of the mapped file, every bit as it stands there: nothing but headers is
    read until somebody looks at them. They need not be aligned; `loaded()` of what is returned copies all at once.
    Writers of the format, perdure among them, replace files and never write into them; a file that somebody cuts while
    it is mapped ends the process that looks at what is gone (SIGBUS).

    Args:
        path: the file; its name does not count.

    Returns:
        Its sections in order, its scalars, and what should be known about it.

    Raises:
        NoCheckpointError: there is no such file.
        StorageFileError: it is not well formed; `kind` says how.
    """
    source = Source(Path(path).expanduser())
    match _version(source):
        case 2:
            return read_v2(source)
        case _:
            return _read_v3(source)


def _version(source: Source) -> int:
    if source.peek(len(MAGIC)) != MAGIC:
        begins = ascii(source.peek(16).decode("latin-1"))
        problem = f"begins with {begins}, files of storage-ckpt with {MAGIC.decode()!r}"
        source.refuse(Kind.NOT_A_CHECKPOINT, 0, problem, "Name a file of storage-ckpt.")
    line = source.line(_FIRST_LINE_BYTES)
    if line is None and source.size <= len(V3):
        source.refuse(Kind.TRUNCATED, 0, "the file ends inside its first line")
    if line not in (V2, V3):
        said = ascii((line or source.peek(_FIRST_LINE_BYTES)).decode("latin-1"))
        way_out = "Let the noeira that wrote it load and save it: it writes version 3."
        source.refuse(Kind.UNSUPPORTED_VERSION, 0, f"the first line is {said}; versions 2 and 3 are read", way_out)
    return 3 if line == V3 else 2


def _read_v3(source: Source) -> StorageCheckpoint:
    sections: list[Section] = []
    scalars: dict[str, float] = {}
    while source.left:
        header = next_header(source)
        if header.kind == SCALAR:
            _add_scalar(source, header, scalars)
            continue
        if scalars:
            problem = f"the section {header.kind} {header.name} follows a scalar; scalars stand behind all sections"
            source.refuse(Kind.SECTION_ORDER, header.offset, problem)
        sections.append(_section(source, header))
    return StorageCheckpoint(source.path, 3, tuple(sections), scalars)


def _section(source: Source, header: Header) -> Section:
    count = 3 if header.has_moments else 1
    wanted = count * header.size * FLOAT32.itemsize
    if wanted > source.left:  # compared before anything is allocated
        problem = f"{header.name} announces {header.size:,} values, {wanted:,} bytes; the file has {source.left:,} left"
        source.refuse(Kind.TRUNCATED, header.offset, problem)
    arrays = [_view(source, header.size) for _ in range(count)]
    kind = "P" if header.kind == "P" else "S"
    return Section(kind, header.name, *arrays, offset=header.offset)


def _view(source: Source, size: int) -> np.ndarray:
    start = source.take(size * FLOAT32.itemsize)
    if not size:  # NumPy refuses a view that begins at the very end of the file
        return np.empty(0, FLOAT32)
    return np.frombuffer(source.data, FLOAT32, size, start)


def _add_scalar(source: Source, header: Header, scalars: dict[str, float]) -> None:
    if header.name in scalars:
        source.refuse(Kind.DUPLICATE_NAME, header.offset, f"the scalar {header.name} stands there twice")
    if source.left < _SCALAR_BYTES:
        problem = f"the scalar {header.name} has {source.left} of its {_SCALAR_BYTES} bytes"
        source.refuse(Kind.TRUNCATED, header.offset, problem)
    (scalars[header.name],) = struct.unpack_from("<d", source.data, source.take(_SCALAR_BYTES))
