"""Settings: plain attributes of modules that were chosen, not drawn: numbers, texts, short arrays written by hand."""

from typing import Any

import numpy as np

from perdure.contract.text import Plain
from perdure.tree.leaves import PLAIN_TYPES, Array, Tree

LARGEST_ARRAY = 8
"""Elements of an array that counts as a setting; a longer one is a table, or was drawn."""

MOST_DIGITS = {"float32": 4, "float64": 6}
"""Significant digits of a number that somebody wrote. Of drawn ones, one in a thousand float32 has so few."""

COMPUTED = "drawn or computed"
"""Stands for an array that nobody wrote: two of them are never told apart, for another seed draws another one."""

_UNITS = frozenset({-1.0, 0.0, 1.0})
"""Arrays of nothing else may be masks, signs or choices that were drawn."""


def setting_of(tree: Tree) -> tuple[Plain, ...]:
    """The setting that a captured leaf is; nothing if it is none."""
    if type(tree) in PLAIN_TYPES:
        return (tree,)
    if not isinstance(tree, Array):
        return ()
    if tree.scalar and type(number := tree.value.item()) in PLAIN_TYPES:
        return (number,)
    return _of_array(tree.value) if tree.value.size <= LARGEST_ARRAY else ()


def _of_array(array: np.ndarray) -> tuple[Plain, ...]:
    """A number without axes as one; floats with axes as text; no integers with axes, which may be keys or orders."""
    if array.dtype.kind in "biu":
        return (array.item(),) if array.ndim == 0 else ()
    digits = MOST_DIGITS.get(array.dtype.name)
    if digits is None:
        return ()
    numbers = [_as_written(number) for number in array.reshape(-1)]
    is_pattern = array.size > 1 and _UNITS.issuperset(numbers)
    if is_pattern or any(_digits_of(number) > digits for number in numbers):
        return (COMPUTED,)
    return (numbers[0],) if array.ndim == 0 else (repr(numbers),)


def _as_written(number: Any) -> float:
    """The shortest decimal number that is this one in its own dtype: 0.1, not 0.10000000149011612."""
    return float(str(number))


def _digits_of(number: float) -> int:
    mantissa = np.format_float_scientific(number, trim="-").partition("e")[0]
    return sum(letter.isdecimal() for letter in mantissa)
