"""What a step gave, told in few bytes, and compared bit by bit."""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

WALL_CLOCK = frozenset({"t", "_t", "time"})
"""Keys of `info` that hold real time."""


def checksum(reward: Any, *, terminated: Any, truncated: Any) -> int:
    """A CRC-32 of what a step returned beside its observation."""
    return zlib.crc32(struct.pack("<d??", float(reward), bool(terminated), bool(truncated)))


def digest_of_value(value: Any) -> str:
    """A digest of an observation: nested dicts, tuples, arrays, numbers and text, with their dtypes."""
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in leaves_of(value):
        digest.update(repr((path, type(leaf).__name__)).encode())
        if isinstance(leaf, np.ndarray | np.generic):
            array = np.asarray(leaf)
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
        else:
            digest.update(leaf.hex().encode() if isinstance(leaf, float) else repr(leaf).encode())
    return digest.hexdigest()


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All leaves of a nested value with their paths, without those that hold real time."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name not in WALL_CLOCK:
                yield from leaves_of(part, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value):
            yield from leaves_of(part, f"{path}/{at}")
    else:
        yield path, value
