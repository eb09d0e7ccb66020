"""Zip archives from anywhere: every member's name, place and size is checked before a byte is unpacked.

Nothing is ever written to a disk: a member is a view of the archive's own bytes, or unpacked into memory within a bound
that the archive's size sets.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perdure.errors import DamagedError
from perdure.interop.windows import Window

MAX_GROWTH = 100
"""How many times larger than the archive its compressed members may be, all together."""

FREE_BYTES = 1 << 26
"""What may be unpacked from any archive, however small."""

SIGNATURE = b"PK\x03\x04"
"""How a member begins, and with it nearly every archive."""

_LOCAL = struct.Struct("<4s5H3L2H")
_DRIVE = re.compile("[A-Za-z]:")
_IS_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error, EOFError, OSError)


@dataclass(frozen=True)
class Member:
    """One file in an archive."""

    start: int
    """Where its bytes begin in the archive."""
    stored_bytes: int
    """How many they are."""
    size_bytes: int
    """How many they are unpacked."""
    crc: int
    """CRC-32 of the unpacked ones."""
    is_deflated: bool
    """Whether they are compressed."""


class Zip:
    """An archive, checked."""

    def __init__(self, data: memoryview, place: str) -> None:
        """Reads the archive's directory.

        Args:
            data: the whole archive.
            place: where it stands, for messages.

        Raises:
            DamagedError: it is cut; members are encrypted, lie over one another, unpack to more than `MAX_GROWTH` times
                the archive, or have names that lead elsewhere or stand there twice.
        """
        self._data = data
        self._place = place
        self._read: dict[str, memoryview] = {}
        self.members: Mapping[str, Member] = MappingProxyType(self._checked_members())
        """By name, in the order of the archive's directory; directories are left out."""
        filled = [member for member in self.members.values() if member.size_bytes]
        self.has_checksums = any(member.crc for member in filled) or not filled
        """False if every CRC-32 is 0: `torch.save` can be told to leave them out."""

    def read(self, name: str, *, checked: bool = True) -> memoryview:
        """A member's bytes: a view of the archive, or unpacked.

        Args:
            name: of a member that is there.
            checked: whether the bytes are compared with their CRC-32, for which all of them are read.

        Raises:
            DamagedError: they do not unpack to what the directory says, or are not those of the CRC-32.
        """
        if name in self._read:
            return self._read[name]
        member = self.members[name]
        stored = self._data[member.start : member.start + member.stored_bytes]
        content = memoryview(self._inflated(name, member, stored)) if member.is_deflated else stored
        if not checked:
            return content
        if self.has_checksums and zlib.crc32(content) != member.crc:
            raise self._damaged(f"{name}: its bytes are not those that its checksum (CRC-32) was made of")
        self._read[name] = content
        return content

    def _inflated(self, name: str, member: Member, stored: memoryview) -> bytes:
        machine = zlib.decompressobj(-15)
        try:
            content = machine.decompress(stored, member.size_bytes + 1)
        except zlib.error as error:
            raise self._damaged(f"{name}: cannot be unpacked: {error}") from error
        if len(content) != member.size_bytes or not (machine.eof or not member.size_bytes):
            raise self._damaged(f"{name}: does not unpack to the {member.size_bytes:,} bytes that it claims")
        return content

    def _checked_members(self) -> dict[str, Member]:
        try:
            with zipfile.ZipFile(Window(self._data)) as archive:
                entries, end = archive.infolist(), archive.start_dir
            found = self._placed(entries, end)
        except _BROKEN as error:
            if isinstance(error, DamagedError):
                raise
            raise self._damaged(f"no whole zip archive: {error}") from error
        unpacked = sum(member.size_bytes for member in found.values() if member.is_deflated)
        if unpacked > FREE_BYTES + MAX_GROWTH * len(self._data):
            claimed = f"its members claim {unpacked:,} bytes"
            raise self._damaged(f"{claimed}, more than {MAX_GROWTH} times the {len(self._data):,} of the archive")
        return {name: member for name, member in found.items() if not name.endswith("/")}

    def _placed(self, entries: list[zipfile.ZipInfo], end: int) -> dict[str, Member]:
        """The members, none of which lies over another one or over the directory at `end`."""
        found: dict[str, Member] = {}
        for entry in entries:
            self._check_entry(entry, found)
            found[entry.filename] = self._member(entry)
        previous = 0
        for entry in sorted(entries, key=lambda each: each.header_offset):
            if entry.header_offset < previous:
                raise self._damaged(f"{entry.filename!a}: lies over the member before it")
            previous = found[entry.filename].start + found[entry.filename].stored_bytes
            if previous > end:
                raise self._damaged(f"{entry.filename!a}: {previous - end:,} of its bytes are beyond the last one")
        return found

    def _check_entry(self, entry: zipfile.ZipInfo, found: Mapping[str, Member]) -> None:
        name, written = entry.filename, entry.orig_filename
        steps = written.removesuffix("/").split("/")
        is_odd = not written.isprintable() or "\\" in written or _DRIVE.match(written) is not None
        if is_odd or not {"", ".", ".."}.isdisjoint(steps):
            raise self._damaged(f"{written!a}: a name of a member that leads elsewhere, or none")
        if name in found:
            raise self._damaged(f"{name!a}: stands there twice")
        if entry.flag_bits & _IS_ENCRYPTED:
            raise self._damaged(f"{name!a}: is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._damaged(f"{name!a}: is compressed by method {entry.compress_type}, which is not read")
        if entry.compress_type == zipfile.ZIP_STORED and entry.file_size != entry.compress_size:
            raise self._damaged(
                f"{name!a}: claims {entry.file_size:,} bytes, but is stored plainly in {entry.compress_size:,}"
            )

    def _member(self, entry: zipfile.ZipInfo) -> Member:
        """With its place, which the header before its bytes says."""
        header = bytes(self._data[entry.header_offset : entry.header_offset + _LOCAL.size])
        if entry.header_offset < 0 or len(header) < _LOCAL.size or not header.startswith(SIGNATURE):
            raise self._damaged(f"{entry.filename!a}: no member begins at byte {entry.header_offset:,}")
        *_, name_bytes, extra_bytes = _LOCAL.unpack(header)
        at = entry.header_offset + _LOCAL.size
        is_utf_8 = _LOCAL.unpack(header)[2] & 0x800
        name = bytes(self._data[at : at + name_bytes]).decode("utf-8" if is_utf_8 else "cp437")
        if name != entry.orig_filename:
            raise self._damaged(f"{entry.filename!a}: is called {name!a} in the header before its bytes")
        is_deflated = entry.compress_type == zipfile.ZIP_DEFLATED
        start = at + name_bytes + extra_bytes
        return Member(start, entry.compress_size, entry.file_size, entry.CRC, is_deflated)

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self._place}: {what}. Take an undamaged copy of the file.")


def first_name(data: memoryview) -> str:
    """The first member's name by the header before its bytes, even of an archive that is cut; empty if it has none."""
    header = bytes(data[: _LOCAL.size])
    if len(header) < _LOCAL.size or not header.startswith(SIGNATURE):
        return ""
    length = _LOCAL.unpack(header)[-2]
    return bytes(data[_LOCAL.size : _LOCAL.size + length]).decode("utf-8", "replace")
