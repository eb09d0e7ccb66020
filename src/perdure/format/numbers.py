"""Plain leaves in JSON: ordinary values as they are, the rest tagged so that no bit is lost."""

import math
import re
import struct
from typing import Any

from perdure.errors import DamagedError
from perdure.format.canonical import Json

LARGEST_EXACT_INT = 2**53
"""Beyond this, JSON readers that use doubles would round: such integers are tagged."""

_HEX_INT = re.compile(r"-?0x[1-9a-f][0-9a-f]*")
_HEX_FLOAT = re.compile(r"[0-9a-f]{16}")
_HEX_BYTES = re.compile(r"(?:[0-9a-f]{2})*")

PLAIN_TAGS = frozenset({"int", "float", "complex", "bytes"})


def encode_plain(value: Any) -> Json:
    """A plain leaf as JSON; see `docs/format.md` for the tags."""
    if type(value) is str or value is None or isinstance(value, bool | str):  # most are text
        return value
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_EXACT_INT else {"int": hex(value)}
    if isinstance(value, float):
        ordinary = math.isfinite(value) and not (value == 0.0 and math.copysign(1.0, value) < 0)
        return value if ordinary else {"float": struct.pack(">d", value).hex()}
    if isinstance(value, complex):
        return {"complex": [encode_plain(value.real), encode_plain(value.imag)]}
    return {"bytes": value.hex()}


def decode_plain(node: Json) -> Any:
    """The plain leaf that `node` stands for; only the spelling that `encode_plain` writes is taken.

    Raises:
        DamagedError: a list, an unknown tag, a tagged value that needs no tag, or one that lacks its tag.
    """
    if isinstance(node, list):
        raise DamagedError(f"a list where a value belongs: {str(node)[:80]}")
    value = _decode_tagged(node) if isinstance(node, dict) else node
    if type(value) in (int, float, complex, bytes) and repr(encode_plain(value)) != repr(node):
        raise DamagedError(f"a number in another than its one spelling: {str(node)[:80]}")
    return value


def _decode_tagged(node: dict[str, Json]) -> Any:
    match node:
        case {"int": str(text)} if _HEX_INT.fullmatch(text):
            return int(text, 16)
        case {"float": str(text)} if _HEX_FLOAT.fullmatch(text):
            return struct.unpack(">d", bytes.fromhex(text))[0]
        case {"complex": [real, imag]}:
            return complex(_as_float(real), _as_float(imag))
        case {"bytes": str(text)} if _HEX_BYTES.fullmatch(text):
            return bytes.fromhex(text)
    raise DamagedError(f"an unknown tagged value: {str(node)[:80]}")


def _as_float(node: Json) -> float:
    value = None if isinstance(node, list) else decode_plain(node)
    if not isinstance(value, float):
        raise DamagedError(f"a part of a complex number that is no float: {str(node)[:80]}")
    return value
