"""What `torch.save` writes, in pieces: one pickle, and the bytes of the storages that it names.

Since torch 1.6 this is a zip archive (`data.pkl`, `data/0`, …, `byteorder`, `version`, all in one directory); before, a
few pickles one after another and then the storages. Neither needs torch to be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.errors import DamagedError, UsageError
from perdure.interop.pickled_values import Name, PersistentId
from perdure.interop.restricted_pickle import Dialect, read_next
from perdure.interop.torch_dtypes import dtype_of_storage
from perdure.interop.windows import Window
from perdure.interop.zips import Zip, first_name

TORCH = Dialect("torch", is_open=True)

LEGACY_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"
"""The first value of a file from before torch 1.6, as the opcode LONG1."""

LEGACY_VERSION = 1001
"""The only version of such files."""

NO_CHECKSUMS = "has no checksums, for torch was told to write none: a flipped bit in a tensor passes unnoticed"

IS_LEGACY = "is of the format from before torch 1.6, which has no checksums: a flipped bit in a tensor passes unnoticed"

PICKLE = "data.pkl"
SCRIPT = "constants.pkl"
_MAX_WORD_BYTES = 64


@dataclass(frozen=True)
class TorchArchive:
    """A file of `torch.save`, or the part of another file that is one."""

    place: str
    """Where it stands, for messages."""
    version: str
    """What a person reads: `zip, version 3`."""
    content: Any
    """What the pickle holds; nothing was run."""
    sizes: Mapping[str, int]
    """Bytes of each storage."""
    read: Callable[[str], memoryview]
    """The bytes of a storage that is there; compared with their checksum, if there is one."""
    size_bytes: int
    """Bytes of the whole."""
    is_big_endian: bool = False
    """Whether numbers in the storages begin with their highest byte."""
    notes: tuple[str, ...] = ()
    """What is odd about it, a sentence each."""


def is_torch_file(data: memoryview) -> bool:
    """Whether these are the bytes of `torch.save`, by how they begin."""
    return LEGACY_MAGIC in bytes(data[:32]) or first_name(data).endswith(f"/{PICKLE}") or _root_of(data) is not None


def open_torch(data: memoryview, place: str) -> TorchArchive:
    """Reads the pickle in a file of `torch.save`, without running it, and finds the storages.

    Args:
        data: the file's bytes.
        place: the file, for messages.

    Raises:
        DamagedError: it is cut, contradicts itself, or is none.
        UsageError: it is an archive of TorchScript.
    """
    return _legacy(data, place) if LEGACY_MAGIC in bytes(data[:32]) else _zipped(data, place)


def _root_of(data: memoryview) -> str | None:
    """The directory in the archive that everything is in, even if other tools put it in another order."""
    try:
        return _root(Zip(data, "")) if bytes(data[:2]) == b"PK" else None
    except DamagedError:
        return None


def _root(archive: Zip) -> str | None:
    roots = [name.removesuffix(f"/{PICKLE}") for name in archive.members if name.endswith(f"/{PICKLE}")]
    return roots[0] if len(roots) == 1 and "/" not in roots[0] else None


def _zipped(data: memoryview, place: str) -> TorchArchive:
    archive = Zip(data, place)
    root = _root(archive)
    if root is None:
        raise _damaged(place, f"no archive of torch.save: it does not hold one {PICKLE} in one directory")
    if f"{root}/{SCRIPT}" in archive.members:
        raise UsageError(
            f"{place}: an archive of TorchScript: code, compiled together with its weights. Load it with "
            "torch.jit.load and save its state_dict()."
        )
    pickled = read_next(Window(archive.read(f"{root}/{PICKLE}")), f"{place}: {root}/{PICKLE}", TORCH)
    start = f"{root}/data/"
    sizes = {
        name.removeprefix(start): member.size_bytes
        for name, member in archive.members.items()
        if name.startswith(start)
    }
    return TorchArchive(
        place,
        f"zip, version {_word(archive, f'{root}/version', 'unknown')}",
        pickled.value,
        sizes,
        lambda key: archive.read(start + key),
        len(data),
        _is_big_endian(archive, f"{root}/byteorder", place),
        () if archive.has_checksums else (NO_CHECKSUMS,),
    )


def _word(archive: Zip, name: str, otherwise: str) -> str:
    member = archive.members.get(name)
    if member is None or member.size_bytes > _MAX_WORD_BYTES:
        return otherwise
    text = bytes(archive.read(name)).decode("ascii", "replace").strip()
    return text if text.isprintable() else otherwise


def _is_big_endian(archive: Zip, name: str, place: str) -> bool:
    """Archives from before torch 2.1 do not say; then torch, too, takes them for little-endian."""
    order = _word(archive, name, "" if name in archive.members else "little")
    if order not in ("little", "big"):
        raise _damaged(place, f"{name}: {order!a}, neither little nor big")
    return order == "big"


def _legacy(data: memoryview, place: str) -> TorchArchive:
    """Pickles one after another: a magic number, a version, facts of the machine, the content, the storages' keys."""
    file = Window(data)
    read_next(file, place, TORCH)
    version = read_next(file, place, TORCH).value
    if version != LEGACY_VERSION:
        raise _damaged(place, f"version {version if isinstance(version, int) else '?'}, not {LEGACY_VERSION}")
    read_next(file, place, TORCH)
    pickled = read_next(file, place, TORCH)
    keys = read_next(file, place, TORCH).value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise _damaged(place, "no list of the storages' keys")
    places = _legacy_places(data, file.tell(), keys, _item_sizes(pickled.persistent, place), place)
    sizes = {key: stop - start for key, (start, stop) in places.items()}

    def read(key: str) -> memoryview:
        return data[slice(*places[key])]

    return TorchArchive(place, f"format {LEGACY_VERSION}", pickled.value, sizes, read, len(data), notes=(IS_LEGACY,))


def _item_sizes(persistent: list[PersistentId], place: str) -> dict[str, int]:
    """Bytes of one element of each storage."""
    found: dict[str, int] = {}
    for each in persistent:
        match each.value:
            case ("storage", Name() as kind, str() as key, *_):
                found[key] = dtype_of_storage(kind, place).itemsize
            case _:
                raise _damaged(place, "a persistent id that names no storage")
    return found


def _legacy_places(
    data: memoryview, position: int, keys: list[str], item_sizes: Mapping[str, int], place: str
) -> dict[str, tuple[int, int]]:
    """First byte and end of each storage; the number of its elements stands before it."""
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if key not in item_sizes:
            raise _damaged(place, f"a storage {key!a} that nothing names")
        count = int.from_bytes(data[position : position + 8], "little", signed=True)
        start = position + 8
        position = start + count * item_sizes[key]
        if count < 0 or position > len(data):
            raise _damaged(place, f"storage {key!a}: {count:,} elements, more than there are bytes")
        places[key] = start, position
    if position != len(data):
        raise _damaged(place, f"its storages end at byte {position:,}, the file at byte {len(data):,}")
    return places


def _damaged(place: str, what: str) -> DamagedError:
    return DamagedError(f"{place}: {what}. Take an undamaged copy of the file.")
