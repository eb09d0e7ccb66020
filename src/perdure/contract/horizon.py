"""The horizon: when a run may end at another step, and what becomes of schedules that lead up to its end."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from perdure.contract.comparison import name_of
from perdure.contract.sections import RULES
from perdure.contract.text import ABSENT, text_of
from perdure.errors import DamagedError, Finding

Schedules = Literal["none", "keep", "restretch"]
"""What another total does to schedules. `none`: nothing depends on the total. `keep`: the old schedule is finished,
then its last value stays. `restretch`: what is left of the schedule is stretched over the steps that are left."""

PROGRESS = "progress of schedules"
"""Key of the contract's section `horizon` that keeps the knots."""

_ADVICE = (
    'Say what schedules do: Run(schedules="none"), "keep" or "restretch" (docs/contract.md; a trainer: --schedules); '
    "or pass the saved total, accept the change, or start a new run."
)


@dataclass(frozen=True)
class Progress:
    """How far schedules are, from 0 to 1, by environment steps: straight lines between knots, constant after the last.

    A run of total H that was never changed has the knots (0, 0) and (H, 1), so that progress is steps / H.
    """

    knots: tuple[tuple[int, float], ...]
    """(environment steps, progress), both growing. The last progress is 1, or where a total was cut to."""

    def at(self, env_steps: int) -> float:
        """The progress after so many steps, in [0, 1]."""
        for (start, low), (end, high) in pairwise(self.knots):
            if env_steps < end:
                return low + (high - low) * ((env_steps - start) / (end - start))
        return self.knots[-1][1]

    def restretched(self, env_steps: int, total: int) -> "Progress":
        """The same up to `env_steps`; from there a straight line to 1 at `total`."""
        passed = tuple(knot for knot in self.knots if knot[0] < env_steps)
        bend = (env_steps, self.at(env_steps))
        if bend[1] >= 1.0:  # nothing is left to stretch
            return self
        return Progress((*passed, bend, (total, 1.0)) if total > env_steps else (*passed, bend))

    def text(self) -> str:
        """For the contract: `0:0.0 600:0.5 2000:1.0`."""
        return " ".join(f"{steps}:{share!r}" for steps, share in self.knots)


def straight(total: int) -> Progress:
    """The progress of a run whose total was never changed."""
    return Progress(((0, 0.0), (total, 1.0)) if total > 0 else ((0, 1.0),))


def read_progress(text: str) -> Progress:
    """The inverse of `Progress.text`.

    Raises:
        DamagedError: it is not such a text.
    """
    try:
        pairs = [pair.split(":") for pair in text.split(" ")]
        return Progress(tuple((int(steps), float(share)) for steps, share in pairs))
    except ValueError as error:
        raise DamagedError(f"contract, horizon.{PROGRESS}: {text[:80]!r} is no list of knots") from error


def progress_of(contract: Mapping[str, Mapping[str, Any]]) -> Progress | None:
    """The progress that a contract states; None if it states no total of steps.

    Raises:
        DamagedError: its knots are none.
    """
    section = contract.get("horizon", {})
    return read_progress(section[PROGRESS]) if PROGRESS in section else _straight(total_of(section))


@dataclass(frozen=True)
class HorizonChange:
    """What comparing two horizons gave."""

    findings: list[Finding]
    """What speaks against the resume."""
    progress: Progress | None
    """How far schedules are from now on; None without a total."""
    totals: tuple[int, int] | None = None
    """The old total and the new one, if it is taken without an override."""

    @property
    def notice(self) -> str | None:
        """What to tell, if another total is taken."""
        if self.totals is None:
            return None
        return f"the total of steps changed from {self.totals[0]:,} to {self.totals[1]:,}."


def compare_horizon(
    saved: Mapping[str, Any], found: Mapping[str, Any], schedules: Schedules | None, env_steps: int
) -> HorizonChange:
    """Compares the two sections `horizon`.

    Args:
        saved: the run's: the total under its own key, the knots under `PROGRESS`.
        found: the same here, its progress that of a fresh run.
        schedules: what another total does to schedules; None if nobody said.
        env_steps: where the run stands.
    """
    (old_key, old), (key, new) = _total(saved), _total(found)
    kept = progress_of({"horizon": saved})
    if old == new and (old_key == key or new is None):
        return HorizonChange([], kept)
    if new is not None and new < env_steps:
        return HorizonChange([_too_small(name_of("horizon", str(key)), old, new, env_steps)], kept)
    if schedules is None or old is None or new is None or old_key != key:
        return HorizonChange(_findings(saved, found), kept or _straight(new))
    kept = kept or straight(old)
    progress = kept.restretched(env_steps, new) if schedules == "restretch" else kept
    return HorizonChange([], progress, (old, new))


def _straight(total: int | None) -> Progress | None:
    return None if total is None else straight(total)


def total_of(section: Mapping[str, Any]) -> int | None:
    """The total of environment steps that a section `horizon` states."""
    return _total(section)[1]


def _total(section: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The key that names the total, and the total; `1e6` and `1000000` are the same total."""
    key = next((key for key in section if key != PROGRESS), None)
    value = None if key is None else section[key]
    return key, int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _findings(saved: Mapping[str, Any], found: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for key in sorted((saved.keys() | found.keys()) - {PROGRESS}):
        old, new = (text_of(side[key]) if key in side else ABSENT for side in (saved, found))
        if old != new:
            name, meaning = name_of("horizon", key), RULES["horizon"].meaning
            findings.append(Finding(name, old, new, _ADVICE, "horizon", meaning, f"{old}:{new}"))
    return findings


def _too_small(key: str, old: int | None, new: int, env_steps: int) -> Finding:
    advice = f"The run has taken {env_steps:,} steps already: pass a total of at least that."
    return Finding(key, ABSENT if old is None else str(old), str(new), advice, "horizon")
