"""Plain values as the text of an acceptance (`KEY=OLD:NEW`), and back: typed, unabridged, one spelling a value."""

import ast
import math
import re
from typing import Any

Plain = None | bool | int | float | complex | str | bytes
"""What a contract holds."""

ABSENT = "nothing"
"""Stands for a key that one side does not have; the word itself as a value is written in quotes."""

LONGEST_DECIMAL_BITS = 14_000
"""A longer integer is written in hexadecimal; Python refuses to write more than 4,300 decimal digits."""

_BARE = re.compile(r"[\w./@+%,~-]+")
"""No colon: it stands between the two values of an acceptance."""


def text_of(value: Any) -> str:
    """A plain value: text bare where it cannot be taken for anything else, everything else as Python writes it."""
    if isinstance(value, int) and value.bit_length() > LONGEST_DECIMAL_BITS:
        return hex(value)
    if not isinstance(value, str):
        return repr(value)
    is_bare = _BARE.fullmatch(value) and value != ABSENT and isinstance(literal(value), str)
    return value if is_bare else repr(value)


def plain(value: Any) -> Plain:
    """Subclasses (a YAML reader's numbers, NumPy's) by the value that they are.

    Raises:
        TypeError: it is none of a plain kind.
    """
    if value is None:
        return None
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} is no plain value")


def literal(text: str) -> Any:
    """The value that a person who types `text` means: a number, True, None, quoted text, or the text itself."""
    if text in ("nan", "inf", "-inf"):
        return float(text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | complex | str | bytes | None) else text


def means(given: str, exact: str) -> bool:
    """Whether `given`, typed by a person, stands for the same typed value as `exact` (`3e-4` for `0.0003`)."""
    return given == exact or (ABSENT not in (given, exact) and same(literal(given), literal(exact)))


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are equal with their types: 1, 1.0, "1" and True are four values; NaN equals NaN.

    0.0 and -0.0 are two values: one divided by them is infinite in either direction.
    """
    if type(a) is not type(b) or (isinstance(a, float) and math.copysign(1.0, a) != math.copysign(1.0, b)):
        return a != a and b != b
    return a == b or (a != a and b != b)
