"""Decimal text to float32, each value the nearest one there is: not by way of a float64 that was rounded before."""

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

FLOAT = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?|nan|-?inf")
"""What is taken for a number; `float` would take underscores, spaces and other spellings as well."""


def is_float(text: bytes) -> bool:
    """Whether it is a number as the format writes them."""
    return FLOAT.fullmatch(text) is not None


def float32_of(texts: Sequence[bytes]) -> np.ndarray:
    """(len(texts),), float32: the values of numbers that `is_float` accepted."""
    doubles = np.array([float(text) for text in texts], np.float64)
    with np.errstate(over="ignore"):
        values = doubles.astype(np.float32)
    for at in np.flatnonzero(_halfway(doubles, values)).tolist():
        values[at] = _nearer(Fraction(texts[at].decode()), doubles[at], values[at])
    return values


def _halfway(doubles: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where a float64 lies right between two float32, which may be its own rounding and not the text's value."""
    with np.errstate(invalid="ignore", over="ignore"):
        others = np.nextafter(values, np.where(doubles > values, np.inf, -np.inf).astype(np.float32))
        middles = (values.astype(np.float64) + others.astype(np.float64)) / 2
    return np.isfinite(doubles) & (doubles == middles) & (doubles != values)


def _nearer(exact: Fraction, middle: np.float64, value: np.float32) -> np.float32:
    """The neighbour of `middle` on the side of the exact value; of an exact middle, the one with an even mantissa."""
    if exact == Fraction(float(middle)):
        return value
    is_above = exact > Fraction(float(middle))
    if is_above == (float(value) > float(middle)):
        return value
    return np.nextafter(value, np.float32(np.inf if is_above else -np.inf))
