"""Paths: where a leaf stands in a tree, as a tuple of steps and as text."""

import json
import re
from functools import lru_cache

Step = str | int
"""A dict key or attribute name (str or int), or a position in a list or tuple (int)."""

Path = tuple[Step, ...]
"""Steps from the snapshot's root: the component's name first."""

_PLAIN = re.compile(r"(?!-?\d+\Z)[^/\"\x00-\x1f\ud800-\udfff]+")


def format_path(path: Path) -> str:
    """The path as a person reads it: `optimizer/0/mu/kernel`.

    Text steps that could be mistaken for something else (digits, a slash, a quote, the empty string) or that are no
    valid Unicode are written as JSON strings, so that two different paths never read the same.
    """
    return "/".join(map(_format_step, path))


@lru_cache(maxsize=4096, typed=True)
def _format_step(step: Step) -> str:
    if isinstance(step, int):
        return str(step)
    return step if _PLAIN.fullmatch(step) else json.dumps(step)
