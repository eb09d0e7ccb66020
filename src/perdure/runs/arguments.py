"""The arguments of `Run`: refused where they are given, not hours later."""

import logging
import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.errors import ForgottenValueError, UsageError
from perdure.runs.cadence import Every
from perdure.runs.retention import Keep, KeepAny

_log = logging.getLogger("perdure")


def count(verb: str, name: str, value: Any) -> int:
    """A counter as an exact Python integer.

    Raises:
        UsageError: it is no whole number, or negative.
    """
    if type(value) is int and value >= 0:  # the usual case, at every step of an off-policy loop
        return value
    try:
        number = operator.index(value)
    except TypeError as error:
        raise UsageError(f"{verb}: {name}={value!r} is a {type(value).__name__}; counters are ints.") from error
    if number < 0 or isinstance(value, bool):
        raise UsageError(f"{verb}: {name}={value!r}; counters are ints from 0.")
    return number


def next_counters(before: Counters, env_steps: int, updates: int | None) -> Counters:
    """The counters of the next boundary.

    Raises:
        UsageError: one does not grow.
    """
    number = before.boundary + 1
    steps = count("boundary", "env_steps", env_steps)
    now = Counters(steps, number if updates is None else count("boundary", "updates", updates), number)
    if now.env_steps <= before.env_steps or now.updates < before.updates:
        message = (
            f"boundary {number}: env_steps={now.env_steps}, updates={now.updates} after "
            f"env_steps={before.env_steps}, updates={before.updates}. Both count from the start of "
            "the run; env_steps grows at each boundary."
        )
        raise UsageError(message)
    return now


def check_values(given: Set[str], values: Set[str], live: Set[str]) -> None:
    """Compares the names handed to a boundary with those that `restore` was given.

    Raises:
        ForgottenValueError: a value is missing, or one appears that `restore` was not given.
    """
    missing, unknown = sorted(values - given), sorted(given - values - live)
    if missing:
        again = ", ".join(f"{name}={name}" for name in missing)
        message = f"boundary: {missing} were given to restore and are values: hand them in again ({again})."
        raise ForgottenValueError(message)
    if unknown:
        raise ForgottenValueError(f"boundary: {unknown} were not given to restore; add them there first.")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuses what is none of the choices.

    Raises:
        UsageError: it is another value.
    """
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise UsageError(f"{name}={value!r}: one of {', '.join(map(repr, choices))}.")


def horizon_steps(horizon: str | int | None, contract: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The total of environment steps, from the number itself or from the configuration's key.

    Raises:
        UsageError: it is no whole number from 0.
    """
    if horizon is None:
        return None
    steps = contract["horizon"][horizon] if isinstance(horizon, str) else horizon
    is_whole_float = isinstance(steps, float) and steps.is_integer()  # `1e6` is how people write totals
    if isinstance(steps, bool) or not (isinstance(steps, int) or is_whole_float) or steps < 0:
        raise UsageError(f"horizon={horizon!r} is {steps!r}; a total of environment steps is an int from 0.")
    return int(steps)


def unsaved_end(boundary: int, env_steps: int, horizon: int | None, values: Set[str]) -> str:
    """Why `finish` needs the values, and what to do."""
    handed_in = ", ".join(f"{name}={name}" for name in sorted(values))
    why, way_out = "", "Give the Run a horizon"
    if horizon is not None:
        why = f", for it does not reach the horizon of {horizon:,} steps"
        way_out = "Give the Run the total that the loop really reaches as its horizon"
    place = f"finish: boundary {boundary} (env_steps={env_steps}) is not saved{why}"
    return f"{place}. {way_out}, or call finish(env_steps=…, {handed_in})."


def check_every(every: Any) -> Every:
    """Refuses a bare number.

    Raises:
        UsageError: it is no `Every`.
    """
    if not isinstance(every, Every):
        raise UsageError(f"every={every!r}: an Every, such as Every(updates=10).")
    return every


def check_keep(keep: Any) -> None:
    """Refuses a bare number.

    Raises:
        UsageError: it is no `Keep`.
    """
    if keep is not None and not isinstance(keep, Keep | KeepAny):
        raise UsageError(f"keep={keep!r}: a Keep, such as Keep(last=2), or None for all.")
