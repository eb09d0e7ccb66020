"""A trainer's options as `perdure resume` changes them: by accepted differences, and by another total of steps."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.contract.text import literal, means, text_of
from perdure.errors import UsageError

_SECTIONS = frozenset({"algorithm", "env", "seed"})
"""Sections of the contract that hold options; those of `horizon` are changed by --total-steps."""


def changed_options(
    options: Mapping[str, Any],
    accept: Sequence[str],
    total_steps: int | None,
    *,
    total: Sequence[str] = ("ppo", "total_steps"),
) -> dict[str, Any]:
    """The options with the new values of `KEY=OLD:NEW`, and with another total.

    NEW is taken also where OLD is not what stands there: the refusal then says what does. Acceptances of what is no
    option (a library's version, a part of a component) change nothing here.

    Args:
        options: the options so far, nested.
        accept: what is accepted.
        total_steps: another total; None: as it was.
        total: where the total stands among the options.

    Raises:
        UsageError: a total among the acceptances, or a value of another kind than the option's.
    """
    changed = copy.deepcopy(dict(options))
    if total_steps is not None:
        _owner(changed, total)[total[-1]] = total_steps
    for text in accept:
        key, _, change = text.partition("=")
        section, _, name = key.partition(".")
        if section == "horizon":
            new = change.rpartition(":")[2]
            raise UsageError(f"--accept {text}: another total needs no acceptance; write --total-steps {new}.")
        _set(changed, (name if section in _SECTIONS else key).split("."), text, change)
    return changed


def launch_by_contract(launch: Mapping[str, Any], contract: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A trainer's launch with the options that a checkpoint's contract states: where the lineage cannot be read."""
    if not isinstance(launch.get("config"), dict):
        return launch
    options = copy.deepcopy(launch["config"])
    for section in (*_SECTIONS, "horizon", "operational"):
        for key, value in contract.get(section, {}).items():
            steps = key.split(".")
            owner: Any = options
            for step in steps[:-1]:
                owner = _part(owner, step)
            if _part(owner, steps[-1]) is not _NOTHING:
                owner[int(steps[-1]) if isinstance(owner, list) else steps[-1]] = value
    return {**launch, "config": options}


def total_in(options: Mapping[str, Any], total: Sequence[str]) -> Any:
    """What stands where a trainer keeps its total of steps; None if nothing does."""
    found = _part(_owner(options, total), total[-1])
    return None if found is _NOTHING else found


def _owner(options: Mapping[str, Any], steps: Sequence[str]) -> Any:
    owner: Any = options
    for step in steps[:-1]:
        owner = _part(owner, step)
    return owner


def _set(options: dict[str, Any], steps: Sequence[str], text: str, change: str) -> None:
    """Puts the new value in its place, if there is one."""
    owner: Any = options
    for step in steps[:-1]:
        owner = _part(owner, step)
    old = _part(owner, steps[-1])
    if old is _NOTHING or isinstance(old, dict | list):
        return
    new = _new_value(old, change)
    if not _is_alike(old, new):
        raise UsageError(f"--accept {text}: {new!r} cannot take the place of {old!r}.")
    owner[int(steps[-1]) if isinstance(owner, list) else steps[-1]] = new


_NOTHING = object()
"""Where no option stands."""


def _part(owner: Any, step: str) -> Any:
    if isinstance(owner, dict):
        return owner.get(step, _NOTHING)
    if isinstance(owner, list) and step.isdecimal() and int(step) < len(owner):
        return owner[int(step)]
    return _NOTHING


def _new_value(old: Any, change: str) -> Any:
    """What stands behind OLD and its colon, or behind the first colon: values may hold colons themselves."""
    splits = [at for at, letter in enumerate(change) if letter == ":"]
    fitting = [at for at in splits if means(change[:at], text_of(old))]
    return literal(change[[*fitting, *splits][0] + 1 :])


def _is_alike(old: Any, new: Any) -> bool:
    """Whether an option may change from one to the other: a number to a number, and None to and from anything."""
    numbers = {int, float}
    return None in (old, new) or type(old) is type(new) or {type(old), type(new)} == numbers
