"""The arguments of `Run`: refused where they are given, not hours later."""

import operator
import os
from collections.abc import Mapping
from typing import Any, Literal

from perdure.errors import UsageError
from perdure.runs.cadence import Every
from perdure.runs.directory import RunDirectory
from perdure.runs.retention import Keep, KeepAny

Mode = Literal["auto", "new", "resume"]


def count(verb: str, name: str, value: Any) -> int:
    """A counter as an exact Python integer.

    Raises:
        UsageError: it is no whole number, or negative.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise UsageError(f"{verb}: {name}={value!r} is a {type(value).__name__}; counters are ints.") from error
    if number < 0 or isinstance(value, bool):
        raise UsageError(f"{verb}: {name}={value!r}; counters are ints from 0.")
    return number


def insisted_mode(mode: str, directory: RunDirectory) -> Mode:
    """The mode.

    `perdure resume` insists on resuming one run through the environment, without an edit to the script.

    Raises:
        UsageError: there is no such mode.
    """
    insists_here = os.path.realpath(os.environ.get("PERDURE_RUN_DIR", directory.path)) == os.path.realpath(
        directory.path
    )
    insisted = os.environ.get("PERDURE_MODE", mode) if mode == "auto" and insists_here else mode
    match insisted:
        case "auto" | "new" | "resume":
            return insisted
    raise UsageError(f"mode={insisted!r}: one of 'auto', 'new', 'resume'.")


def horizon_steps(horizon: str | int | None, contract: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The total of environment steps, from the number itself or from the configuration's key.

    Raises:
        UsageError: it is no whole number from 0.
    """
    if horizon is None:
        return None
    steps = contract["horizon"][horizon] if isinstance(horizon, str) else horizon
    is_whole_float = isinstance(steps, float) and steps == int(steps)  # `1e6` is how people write totals
    if isinstance(steps, bool) or not (isinstance(steps, int) or is_whole_float) or steps < 0:
        raise UsageError(f"horizon={horizon!r} is {steps!r}; a total of environment steps is an int from 0.")
    return int(steps)


def check_kinds(every: Any, keep: Any) -> None:
    """Refuses bare numbers for the two arguments that are easily given as such.

    Raises:
        UsageError: `every` is no `Every`, or `keep` no `Keep`.
    """
    if not isinstance(every, Every):
        raise UsageError(f"every={every!r}: an Every, such as Every(updates=10).")
    if keep is not None and not isinstance(keep, Keep | KeepAny):
        raise UsageError(f"keep={keep!r}: a Keep, such as Keep(last=2), or None for all.")
