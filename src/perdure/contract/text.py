"""Plain values as the text of an acceptance (`KEY=OLD:NEW`), and back: typed, unabridged, one spelling a value."""

import ast
import re
from typing import Any

ABSENT = "nothing"
"""Stands for a key that one side does not have; the word itself as a value is written in quotes."""

_BARE = re.compile(r"[\w./@+%,~-]+")
"""No colon: it stands between the two values of an acceptance."""


def text_of(value: Any) -> str:
    """A plain value: text bare where it cannot be taken for anything else, everything else as Python writes it."""
    if not isinstance(value, str):
        return repr(value)
    is_bare = _BARE.fullmatch(value) and value != ABSENT and isinstance(literal(value), str)
    return value if is_bare else repr(value)


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
    """Whether two plain values are equal with their types: 1, 1.0, "1" and True are four values; NaN equals NaN."""
    return type(a) is type(b) and (a == b or (a != a and b != b))
