"""Canonical JSON: one spelling for every value, so that bytes can be compared and digested.

Keys are sorted, there is no white space, everything outside ASCII is escaped. Reading is strict: duplicate
keys, NaN and infinities, other spellings of the same value and deep nesting are refused.
"""

import json
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, NoReturn

from perdure.errors import DamagedError

Json = Any
"""None, bool, int, float, str, and lists and str-keyed dicts of them."""


def encode(value: Json) -> bytes:
    """The canonical bytes of `value`, ending in a newline."""
    return _ENCODER.encode(value).encode("ascii") + b"\n"


def spell(value: Json) -> str:
    """The canonical text of `value` as a part of a larger document: without the newline.

    Plain values take a short way: the encoder needs microseconds for each, and there are hundreds at a boundary.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is int or (kind is float and isfinite(value)):
        return repr(value)
    return _WORDS[value] if kind is bool or value is None else _ENCODER.encode(value)


_WORDS = {None: "null", False: "false", True: "true"}

# One for all: `json.dumps` with options makes a new one at each call, and a checkpoint has hundreds of small documents.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def decode(data: bytes, place: str) -> Json:
    """The value that `data` spells canonically.

    Args:
        data: the bytes of the whole document.
        place: the document's name, for messages.

    Raises:
        DamagedError: `data` is no JSON, or not in the one canonical spelling.
    """
    try:
        value = json.loads(data, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        if encode(value) == data:
            return value
    except RecursionError as error:
        raise DamagedError(f"{place}: nested too deeply") from error
    except ValueError as error:
        raise DamagedError(f"{place}: not canonical JSON ({error})") from error
    raise DamagedError(f"{place}: not in canonical form; somebody edited it, or a byte is damaged")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key appears twice")
    return keys


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
