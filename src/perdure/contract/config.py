"""From a user's configuration to the sections of a contract."""

import dataclasses
import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

import numpy as np

from perdure.contract.declared import EnvironmentVariable, File
from perdure.contract.facts import facts_of
from perdure.contract.naming import full_name_of
from perdure.contract.parts import IncomparableError, kind_of, parts_of
from perdure.contract.redaction import WITHHELD, names_a_secret_option, without_tokens
from perdure.contract.sections import OPERATIONAL, RESERVED
from perdure.contract.text import Plain, plain, text_of
from perdure.errors import UsageError
from perdure.format.digests import digest_of

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
        Sections `algorithm`, `horizon`, `seed` (keys whose last part is `seed`, however it is capitalised),
        `operational` (free), and own ones.

    Raises:
        UsageError: a value that cannot be compared later, a `horizon` that is no key, a section that cannot be one.
    """
    _check_free(free)
    contract = _of_config(config, horizon, free)
    for section, keys in _sections(own).items():
        for key, value in flatten(keys, f"contract[{section!r}]"):
            name = OPERATIONAL if is_free(key, free) else section
            if _is_seed(key):  # wherever it stands
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
        if not isinstance(keys, Mapping) and not (dataclasses.is_dataclass(keys) and not isinstance(keys, type)):
            raise UsageError(f"contract[{section!r}]={keys!r}: a mapping or a dataclass's instance.")
    return own


def _check_free(free: Any) -> None:
    if isinstance(free, str) or not isinstance(free, Collection) or not all(isinstance(each, str) for each in free):
        example = [free] if isinstance(free, str) else ["track", "wandb_*"]
        raise UsageError(f"free={free!r}: a list of patterns, such as {example}.")


def _is_seed(key: str) -> bool:
    return key.split(".")[-1].lower() == "seed"


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
    if _is_seed(key):  # before `free`: a seed is never free
        return "seed"
    if is_free(key, free):
        return OPERATIONAL
    return "horizon" if key == horizon else "algorithm"


def flatten(config: Any, argument: str = "config") -> Iterator[tuple[str, Plain]]:
    """The configuration's dotted keys and plain values, in order.

    Args:
        config: the configuration, or a section of the user's own.
        argument: what it is called in messages.

    Raises:
        UsageError: it contains itself, or something that cannot be compared at a resume.
    """
    is_class = isinstance(config, type) and dataclasses.is_dataclass(config)
    if is_class or _is_one_value(config):
        problem = "a dataclass itself, not an instance of it" if is_class else "one value, without a name"
        raise UsageError(f"{argument}={config!r}: {problem}; give a mapping, a dataclass's instance or an object.")
    try:
        yield from ((key, _without_secret(key, value)) for key, value in _flatten(config, ""))
    except RecursionError as error:
        raise UsageError(f"{argument} (whole): it contains itself, or is nested too deeply.") from error
    except IncomparableError as error:
        raise UsageError(f"{argument} {error}") from error


def _without_secret(key: str, value: Plain) -> Plain:
    """Contracts are written to disk: a text whose key speaks of a secret is not compared, and not kept.

    Of other texts, only what is a secret beyond doubt, for the rest must be compared.
    """
    if not isinstance(value, str) or not value:
        return value
    return WITHHELD if names_a_secret_option(key) else without_tokens(value)


def _is_one_value(config: Any) -> bool:
    is_array = hasattr(config, "dtype") and hasattr(config, "shape") and not isinstance(config, type)
    return is_array or isinstance(config, bool | int | float | complex | str | bytes | enum.Enum | PurePath)


def _flatten(config: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    if config is None and not prefix:
        return
    if isinstance(config, enum.Enum):
        yield prefix, _member(config)
    elif config is None or isinstance(config, bool | int | float | str):
        yield prefix, plain(config)
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


def _member(member: enum.Enum) -> str:
    """A member's name, and the value that the name stands for, if that is a plain one: one choice, one key."""
    is_plain = member.value is None or isinstance(member.value, bool | int | float | str)
    value = f" = {text_of(plain(member.value))}" if is_plain else ""
    return f"{type(member).__name__}.{member.name}{value}"


def _flatten_array(array: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    """NumPy's and JAX's arrays: element by element, or by digest where they are long."""
    value = np.asarray(array)
    if value.dtype.kind not in "biufU":
        raise IncomparableError(f"{prefix or _WHOLE}: an array of {value.dtype} cannot be compared at a resume.")
    if value.size == 0:
        yield prefix, f"empty array {list(value.shape)}"
    elif value.size <= MOST_ELEMENTS:
        yield from _flatten(value.tolist(), prefix)
    else:
        yield prefix, f"{value.dtype}{list(value.shape)},{digest_of(np.ascontiguousarray(value).data)}"


def _number(value: Any, prefix: str) -> Plain:
    try:
        return plain(value.item())
    except (NotImplementedError, TypeError) as error:  # a typed key; a complex number
        problem = f"a {type(value).__name__} cannot be compared at a resume."
        raise IncomparableError(f"{prefix or _WHOLE}: {problem}") from error


_WHOLE = "(whole)"


def _flatten_parts(config: Any, prefix: str) -> Iterator[tuple[str, Plain]]:
    parts, kind = parts_of(config, prefix or _WHOLE), kind_of(config)
    if kind is not None and prefix:
        yield prefix, kind
    elif not parts and prefix:
        yield prefix, f"empty {type(config).__name__}"
    for key, value in parts.items():
        yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))
