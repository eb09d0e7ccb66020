"""The arguments of `Run`: refused where they are given, not hours later."""

import json
import logging
import operator
import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

from perdure.checkpoint.capture import Counters
from perdure.contract.overrides import Accept, Overrides, given_texts
from perdure.errors import ForgottenValueError, UsageError
from perdure.format.digests import digest_of
from perdure.runs.cadence import Every
from perdure.runs.directory import RunDirectory
from perdure.runs.durations import seconds
from perdure.runs.retention import Keep, KeepAny

Mode = Literal["auto", "new", "resume"]

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


def insisted_mode(mode: str, directory: RunDirectory) -> Mode:
    """The mode.

    `perdure resume` insists on resuming one run through the environment, without an edit to the script.

    Raises:
        UsageError: there is no such mode.
    """
    insisted = _from_environment("PERDURE_MODE", directory) or mode if mode == "auto" else mode
    match insisted:
        case "auto" | "new" | "resume":
            return insisted
    raise UsageError(f"mode={insisted!r}: one of 'auto', 'new', 'resume'.")


def _from_environment(name: str, directory: RunDirectory) -> str | None:
    """What `perdure resume` has to say to this run; it may not reach another one that the same script opens."""
    place = os.environ.get("PERDURE_RUN_DIR", directory.path)
    return os.environ.get(name) if os.path.realpath(place) == os.path.realpath(directory.path) else None


def other_run_asked_for(directory: RunDirectory) -> str | None:
    """The run that `perdure resume` was asked for, if it is not this one: a script may have its path written in it."""
    asked = os.environ.get("PERDURE_RUN_DIR")
    return asked if asked is not None and os.path.realpath(asked) != os.path.realpath(directory.path) else None


def overrides_of(accept: Accept, reason: str | None, directory: RunDirectory) -> Overrides:
    """What is accepted: by the script, and by `perdure resume --accept` through the environment.

    Raises:
        UsageError: an acceptance that is none.
    """
    typed = _from_environment("PERDURE_ACCEPT", directory)
    given = dict.fromkeys([*given_texts(accept), *given_texts(_texts(typed) if typed else ())])
    if reason is not None and not isinstance(reason, str):
        raise UsageError(f"reason={reason!r}: a text.")
    return Overrides(tuple(given), reason=reason or _from_environment("PERDURE_REASON", directory))


def _texts(typed: str) -> list[str]:
    try:
        texts = json.loads(typed)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"PERDURE_ACCEPT={typed!r}: a JSON list of texts KEY=OLD:NEW.")
    return texts


def stop_after_of(given: Any, directory: RunDirectory) -> float | None:
    """After how many seconds of this process the run is to stop, as `perdure resume --stop-after` or the script says.

    Raises:
        UsageError: it is no span of time.
    """
    told = _from_environment("PERDURE_STOP_AFTER", directory)
    if told is not None:
        return seconds("PERDURE_STOP_AFTER", told)
    return None if given is None else seconds("stop_after", given)


def chain_of(given: Any, directory: RunDirectory) -> int | None:
    """At which boundaries the run keeps digests, as `perdure prove` or the script says.

    Raises:
        UsageError: no whole number from 1.
    """
    told = _from_environment("PERDURE_CHAIN", directory)
    return _from_1("PERDURE_CHAIN", told) if told is not None else None if given is None else _from_1("chain", given)


def stop_at_of(directory: RunDirectory) -> int | None:
    """The boundary at which `perdure prove` wants the run to stop.

    Raises:
        UsageError: no whole number from 1.
    """
    told = _from_environment("PERDURE_STOP_AT_BOUNDARY", directory)
    return None if told is None else _from_1("PERDURE_STOP_AT_BOUNDARY", told)


def saves_each_of(directory: RunDirectory, *, resets: bool) -> int | None:
    """At which boundaries `perdure prove --kill` wants checkpoints besides those of the cadence: multiples of this.

    Args:
        directory: the run's.
        resets: whether each checkpoint resets the environments: another cadence would be another training.

    Raises:
        UsageError: no whole number from 1.
    """
    told = _from_environment("PERDURE_SAVE_EACH", directory)
    if told is not None and resets:
        _log.warning("%s: PERDURE_SAVE_EACH=%s is ignored: boundary_reset has a cadence.", directory.path, told)
        return None
    return None if told is None else _from_1("PERDURE_SAVE_EACH", told)


def left_fresh_of(directory: RunDirectory) -> str | None:
    """The component that `perdure prove --mutate` wants a resume of this run to leave as a fresh start has it.

    PERDURE_LEAVE_FRESH is `RUN/COMPONENT`, by the name of the run's directory: a script may open several.
    """
    run, _, component = os.environ.get("PERDURE_LEAVE_FRESH", "").rpartition("/")
    return component if run == directory.path.name else None


def _from_1(name: str, value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or number < 1:
        raise UsageError(f"{name}={value!r}: a whole number from 1.")
    return number


def redirected(directory: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Where a run goes while something is proven of its script: a place of its own for each path, in a scratch folder.

    `perdure prove` says so by PERDURE_SCRATCH: no script need be edited, and no run of its user's is touched.
    """
    scratch = os.environ.get("PERDURE_SCRATCH")
    if scratch is None:
        return directory
    digest = digest_of(os.fsencode(directory)).rpartition(":")[2]
    return Path(scratch) / f"{Path(directory).name}-{digest[:8]}"


def retry_asked_for(directory: RunDirectory) -> bool:
    """Whether `perdure resume --retry` says that the run may fail once more."""
    return _from_environment("PERDURE_RETRY", directory) == "1"


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
