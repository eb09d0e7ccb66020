"""Orders: what whoever started this process has to say to a run, through its environment.

`perdure resume` and `perdure prove` start scripts that they cannot edit.
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perdure.contract.overrides import Accept, Overrides, given_texts
from perdure.errors import UsageError
from perdure.format.digests import digest_of
from perdure.runs.chain import spacing_of
from perdure.runs.directory import RunDirectory
from perdure.runs.durations import seconds

Mode = Literal["auto", "new", "resume"]

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class Orders:
    """What a run is told beside its arguments."""

    stop_after_s: float | None
    """After how many seconds of this process it is to stop; None: never."""
    chain_every: int | None
    """At which boundaries it keeps digests: multiples of this; None: at none."""
    stop_at: int | None
    """The boundary at which it is to stop; None: none."""
    saves_each: int | None
    """At which boundaries there are checkpoints besides those of the cadence: multiples of this; None: at none."""
    left_fresh: str | None
    """The component that a resume leaves as a fresh start has it; None: none."""
    retry: bool
    """Whether it may fail once more after a crash loop."""

    def wants_stop(self, boundary: int) -> bool:
        """Whether the run is to stop at a boundary, or earlier."""
        return self.stop_at is not None and boundary >= self.stop_at

    def wants_checkpoint(self, boundary: int) -> bool:
        """Whether a boundary is to be saved, whatever the cadence says."""
        return self.saves_each is not None and boundary % self.saves_each == 0


def orders_for(directory: RunDirectory, *, chain: Any, stop_after: Any, resets: bool) -> Orders:
    """The orders for a run; they take the place of what its script says.

    Args:
        directory: the run's.
        chain: at which boundaries it keeps digests, as its script says.
        stop_after: after what span of time it is to stop, as its script says.
        resets: whether each checkpoint resets the environments: another cadence would be another training.

    Raises:
        UsageError: an order, or what the script says, is no whole number from 1 or no span of time.
    """
    return Orders(
        stop_after_s=_stop_after_of(stop_after, directory),
        chain_every=_chain_of(chain, directory),
        stop_at=_stop_at_of(directory),
        saves_each=_saves_each_of(directory, resets=resets),
        left_fresh=_left_fresh_of(directory),
        retry=_retry_asked_for(directory),
    )


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


def other_run_asked_for(directory: RunDirectory) -> str | None:
    """The run that `perdure resume` was asked for, if it is not this one: a script may have its path written in it."""
    asked = os.environ.get("PERDURE_RUN_DIR")
    return asked if asked is not None and os.path.realpath(asked) != os.path.realpath(directory.path) else None


def redirected(directory: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Where a run goes while something is proven of its script: a place of its own for each path, in a scratch folder.

    `perdure prove` says so by PERDURE_SCRATCH: no script need be edited, and no run of its user's is touched.
    """
    scratch = os.environ.get("PERDURE_SCRATCH")
    if scratch is None:
        return directory
    digest = digest_of(os.fsencode(directory)).rpartition(":")[2]
    return Path(scratch) / f"{Path(directory).name}-{digest[:8]}"


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


def _stop_after_of(given: Any, directory: RunDirectory) -> float | None:
    told = _from_environment("PERDURE_STOP_AFTER", directory)
    if told is not None:
        return seconds("PERDURE_STOP_AFTER", told)
    return None if given is None else seconds("stop_after", given)


def _chain_of(given: Any, directory: RunDirectory) -> int | None:
    """As told, or as the script says; else a chain that is there is continued, or it would tell of a run half."""
    told = _from_environment("PERDURE_CHAIN", directory)
    if told is not None:
        return _from_1("PERDURE_CHAIN", told)
    return spacing_of(directory.chain) if given is None else _from_1("chain", given)


def _stop_at_of(directory: RunDirectory) -> int | None:
    told = _from_environment("PERDURE_STOP_AT_BOUNDARY", directory)
    return None if told is None else _from_1("PERDURE_STOP_AT_BOUNDARY", told)


def _saves_each_of(directory: RunDirectory, *, resets: bool) -> int | None:
    told = _from_environment("PERDURE_SAVE_EACH", directory)
    if told is not None and resets:
        _log.warning("%s: PERDURE_SAVE_EACH=%s is ignored: boundary_reset has a cadence.", directory.path, told)
        return None
    return None if told is None else _from_1("PERDURE_SAVE_EACH", told)


def _left_fresh_of(directory: RunDirectory) -> str | None:
    """PERDURE_LEAVE_FRESH is `RUN/COMPONENT`, by the name of the run's directory: a script may open several."""
    run, _, component = os.environ.get("PERDURE_LEAVE_FRESH", "").rpartition("/")
    return component if run == directory.path.name else None


def _retry_asked_for(directory: RunDirectory) -> bool:
    return _from_environment("PERDURE_RETRY", directory) == "1"


def _from_1(name: str, value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or number < 1:
        raise UsageError(f"{name}={value!r}: a whole number from 1.")
    return number


def _from_environment(name: str, directory: RunDirectory) -> str | None:
    """What `perdure resume` has to say to this run; it may not reach another one that the same script opens."""
    place = os.environ.get("PERDURE_RUN_DIR", directory.path)
    return os.environ.get(name) if os.path.realpath(place) == os.path.realpath(directory.path) else None
