"""Settings of environments as values that can be hashed, and libraries that may not be installed."""

import importlib
from collections.abc import Hashable, Mapping
from typing import Any

_PLAIN = (bool, int, float, str, type(None))


def import_library(module: str, *, extra: str) -> Any:
    """The module of an optional library.

    Args:
        module: Its dotted name, for instance `brax.envs`.
        extra: The extra of perdure that installs it.

    Raises:
        ImportError: If it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{module}: expected to be installed, but the module {error.name!r} was not found. "
            f"Install it: pip install 'perdure[{extra}]'."
        ) from error


def frozen(value: Any, place: str) -> Hashable:
    """A hashable value that is equal for equal settings only; 1, 1.0 and True are three.

    Args:
        value: Numbers, texts, None, and lists, tuples and dicts of them.
        place: What it is called in the error.

    Raises:
        TypeError: If it holds anything else.
    """
    if isinstance(value, Mapping):
        return ("dict", tuple((key, frozen(value[key], f"{place}.{key}")) for key in sorted(value)))
    if isinstance(value, list | tuple):
        return (type(value).__name__, tuple(frozen(item, f"{place}.{at}") for at, item in enumerate(value)))
    if type(value) in _PLAIN:
        return (type(value).__name__, value)
    raise TypeError(
        f"{place}: expected numbers, texts, None, or lists and dicts of them, got a {type(value).__name__}. "
        "Settings tell environments apart, so pass plain values (an enum's .value, an array's .tolist())."
    )
