"""From a user's configuration to the sections of a contract."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from perdure.contract.declared import EnvironmentVariable, File
from perdure.contract.facts import facts_of
from perdure.contract.naming import full_name_of
from perdure.contract.sections import OPERATIONAL, RESERVED
from perdure.errors import UsageError
from perdure.format.digests import digest_of

Plain = None | bool | int | float | str
Section = dict[str, Plain]
Contract = dict[str, Section]
"""Section name -> key -> value. Keys are dotted: `ppo.learning_rate`."""

MOST_ELEMENTS = 64
"""Of an array in a configuration; longer ones are told by their digest."""

SECTIONS = ("algorithm", "horizon", "seed", OPERATIONAL)


def contract_of(
    config: Any, *, horizon: str | None = None, free: Sequence[str] = (), own: Mapping[str, Any] | None = None
) -> Contract:
    """The contract that a configuration stands for.

    Args:
        config: a dataclass, a mapping, an object with attributes (`argparse.Namespace`), or None.
        horizon: the dotted key that names the total number of environment steps, if there is one.
        free: patterns (`track`, `wandb_*`) of keys that may change at a resume.
        own: sections of the user's own (`contract=`), each a configuration in itself.

    Returns:
        Sections `algorithm`, `horizon`, `seed` (keys whose last part is `seed`), `operational` (free), and own ones.

    Raises:
        UsageError: a value that cannot be compared later, a `horizon` that is no key, a section that cannot be one.
    """
    if isinstance(free, str):
        raise UsageError(f"free={free!r}: a list of patterns, such as [{free!r}].")
    contract = _of_config(config, horizon, free)
    for section, keys in _sections(own).items():
        for key, value in flatten(keys):
            name = OPERATIONAL if is_free(key, free) else section
            if key.split(".")[-1] == "seed":  # wherever it stands
                name, key = "seed", f"{section}.{key}"
            if key in contract.setdefault(name, {}):
                raise UsageError(f"contract[{section!r}]: config= has the key {key!r} too; rename one.")
            contract[name][key] = value
    return contract


def _sections(own: Any) -> Mapping[str, Any]:
    if own is None:
        return {}
    if not isinstance(own, Mapping):
        raise UsageError(f"contract={own!r}: a mapping from sections to keys, such as {{'reward': {{'weight': 0.5}}}}.")
    for section, keys in own.items():
        if not isinstance(section, str) or section in RESERVED or not section.isidentifier():
            taken = ", ".join(sorted(RESERVED))
            raise UsageError(f"contract[{section!r}]: a section's name is an identifier, and none of {taken}.")
        if not isinstance(keys, Mapping) and not dataclasses.is_dataclass(keys):
            raise UsageError(f"contract[{section!r}]={keys!r}: a mapping or dataclass of keys and values.")
    return own


def is_free(key: str, free: Sequence[str]) -> bool:
    """Whether one of the patterns covers the key."""
    return any(fnmatchcase(key, pattern) for pattern in free)


def _of_config(config: Any, horizon: str | None, free: Sequence[str]) -> Contract:
    contract: Contract = {name: {} for name in SECTIONS}
    flat: dict[str, Plain] = {}
    for key, value in flatten(config):
        if key in flat:
            raise UsageError(f"config: two entries have the key {key!r}; rename one.")
        flat[key] = value
        contract[_section(key, horizon, free)][key] = value
    if horizon in contract[OPERATIONAL]:
        raise UsageError(f"horizon={horizon!r} cannot be free; take it out of free={list(free)}.")
    if horizon is not None and not contract["horizon"]:
        raise UsageError(f"horizon={horizon!r} is no key of config; it has {list(flat)}.")
    return contract


def _section(key: str, horizon: str | None, free: Sequence[str]) -> str:
    if key.split(".")[-1] == "seed":  # before `free`: a seed is never free
        return "seed"
    if is_free(key, free):
        return OPERATIONAL
    return "horizon" if key == horizon else "algorithm"


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Plain]]:
    """The configuration's dotted keys and plain values, in order.

    Raises:
        UsageError: it contains itself, or something that cannot be compared at a resume.
    """
    try:
        yield from _flatten(config, prefix)
    except RecursionError as error:
        raise UsageError(f"config {prefix or '(whole)'}: it contains itself, or is nested too deeply.") from error


def _flatten(config: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    if config is None and not prefix:
        return
    if isinstance(config, enum.Enum):
        yield prefix, f"{type(config).__name__}.{config.name}"
    elif config is None or isinstance(config, bool | int | float | str):
        yield prefix, _plain(config)
    elif isinstance(config, File | EnvironmentVariable):
        yield prefix or "value", config.fact()
    elif isinstance(config, PurePath):
        yield prefix, str(config)
    elif hasattr(config, "item") and getattr(config, "shape", None) == ():
        yield prefix, _number(config, prefix)
    elif hasattr(config, "tolist") and hasattr(config, "dtype") and not isinstance(config, type):
        yield from _flatten_array(config, prefix)
    elif callable(config) and hasattr(config, "__qualname__") and prefix:
        yield prefix, full_name_of(config)
        yield from ((".".join([prefix, *map(str, path)]), text) for path, text in facts_of(config) if path)
    else:
        yield from _flatten_parts(config, prefix)


def _flatten_array(array: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    """NumPy's and JAX's arrays: element by element, or by digest where they are long."""
    value = np.asarray(array)
    if value.dtype.kind not in "biufU":
        raise UsageError(f"config {prefix or '(whole)'}: an array of {value.dtype} cannot be compared at a resume.")
    if value.size <= MOST_ELEMENTS:
        yield from _flatten(value.tolist(), prefix)
    else:
        yield prefix, f"{value.dtype}{list(value.shape)},{digest_of(np.ascontiguousarray(value).data)}"


def _number(value: Any, prefix: str) -> Plain:
    try:
        return _plain(value.item())
    except (NotImplementedError, StopIteration) as error:  # a typed key; a complex number
        raise UsageError(f"config {prefix}: a {type(value).__name__} cannot be compared at a resume.") from error


def _plain(value: Any) -> Plain:
    """Subclasses (a YAML reader's numbers, say) by the value that they are."""
    if value is None:
        return None
    return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))


def _flatten_parts(config: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    parts = _parts(config, prefix)
    if dataclasses.is_dataclass(config) and prefix:
        yield prefix, type(config).__qualname__
    elif not parts and prefix:
        yield prefix, f"empty {type(config).__name__}"
    for key, value in parts.items():
        yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))


def _parts(config: Any, prefix: str) -> Mapping[Any, Any]:
    if dataclasses.is_dataclass(config):
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return config
    if isinstance(config, list | tuple):
        return dict(enumerate(config))
    if isinstance(config, partial):
        return {"function": config.func, "args": config.args, "keywords": config.keywords}
    if hasattr(config, "__dict__"):
        return _attributes(config)
    raise UsageError(f"config {prefix or '(whole)'}: a {type(config).__name__} cannot be compared at a resume.")


def _attributes(config: Any) -> Mapping[Any, Any]:
    """Attributes of an object or of a class; those of its classes too: `class Config: learning_rate = 3e-4`."""
    classes = config.__mro__ if isinstance(config, type) else type(config).__mro__
    own = {} if isinstance(config, type) else vars(config)
    found = {}
    for cls in reversed(classes):
        if cls is not object:
            found |= {name: value for name, value in vars(cls).items() if not _is_machinery(name, value, cls)}
    return {**found, **own}


def _is_machinery(name: str, value: Any, cls: type) -> bool:
    """Whether an entry of a class is its own method, descriptor or inner class; functions from elsewhere are values."""
    is_function = isinstance(value, type | FunctionType | BuiltinFunctionType) or hasattr(value, "__wrapped__")
    if is_function and not isinstance(value, classmethod | staticmethod):
        return name.startswith("__") or getattr(value, "__qualname__", "").startswith(f"{cls.__qualname__}.")
    return name.startswith("__") or callable(value) or hasattr(value, "__get__")
