"""The audit: which variables of a script matter, and are in no checkpoint.

The script runs straight, twice, and is interrupted once, in fresh processes. Where a turn of its loop begins, all that
can be reached is compared: what differs in the resumed process, and does not in the two straight ones, is put right
there, and the run goes on. What then becomes different was read before it was written
([decision 13](docs/decisions/0013-audit.md)).
"""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.contract.sections import AUDIT
from perdure.errors import Preempted, UsageError
from perdure.proof.audit_processes import Outcome, Processes, Seeing
from perdure.proof.audit_sources import advice_for, where_assigned
from perdure.proof.audit_trials import Comparing, Trials
from perdure.proof.audit_units import Unit, differing, only, paths_of
from perdure.runs.directory import RunDirectory
from perdure.runs.record import read_record

AT, UNTIL = 3, 6
"""Boundaries at which a script is interrupted, and up to which it is compared, unless told otherwise."""

Say = Callable[[str], None]
"""Told of each step."""


@dataclass(frozen=True)
class AuditFinding:
    """One variable that no checkpoint holds."""

    place: str
    """Its access path."""
    confirmed: bool
    """Whether the resume is another run because of it; else it is a suspect."""
    straight: str
    """What it held in the straight run, shortened."""
    resumed: str
    """What it held in the resumed one; of a suspect that was not restored otherwise: a turn later."""
    parts: int
    """How many of its parts differ."""
    assigned: tuple[str, ...]
    """Where it is assigned or changed: `train.py:17`."""
    advice: str
    """What to add; empty for suspects."""
    why: str
    """What showed it, or why it could not be shown."""


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    at: int
    """The boundary at which the script was interrupted."""
    until: int
    """The last boundary that was compared."""
    exact: bool
    """Whether the resumed run equals the straight one up to there."""
    explained: bool
    """Whether it does once the confirmed findings are put right."""
    confirmed: tuple[AuditFinding, ...]
    """By place."""
    suspects: tuple[AuditFinding, ...]
    """By place."""
    ignored: Mapping[str, str]
    """What differed or changed and was left alone, with the reason."""
    undetermined: tuple[str, ...]
    """Components in which two straight runs differ, so that nothing can be told by them; `metrics` among them."""
    skipped: Mapping[str, int]
    """What was not looked into, and how often it was met."""
    processes: int
    """How many were started."""


def audit(
    command: Sequence[str], *, at: int = AT, until: int = UNTIL, scratch: Path | None = None, say: Say | None = None
) -> Audit:
    """Audits a script.

    Args:
        command: the script with its arguments, as one starts it.
        at: the boundary at which it is interrupted, from 1.
        until: the boundary up to which it runs, greater than `at`.
        scratch: a folder for its runs, which stays; None: a temporary one.
        say: told of each step.

    Raises:
        UsageError: the script cannot be started, fails by itself, opens no run, or never gets to `at`.
    """
    say = say or (lambda step: None)
    if at < 1 or until <= at:
        raise UsageError(f"--at {at} --until {until}: --at is from 1, and --until is greater.")
    if scratch is not None:
        return _Auditor(Processes(command, scratch), at, until, say).audit()
    with tempfile.TemporaryDirectory(prefix="perdure-audit-") as folder:
        return _Auditor(Processes(command, Path(folder)), at, until, say).audit()


@dataclass
class _Auditor:
    processes: Processes
    at: int
    until: int
    say: Say
    comparing: Comparing = field(init=False)

    def __post_init__(self) -> None:
        self.comparing = Comparing(self.at)

    def audit(self) -> Audit:
        """All of it, step by step."""
        self.say(f"straight, up to boundary {self.until}")
        straight = self._checked(self._start(at=None), "the straight run")
        seen, looks = self._look_of(straight), straight.looks
        self.say(f"interrupted at boundary {self.at}")
        stopped = self.processes.start(until=self.at, orders={"look_at": []})
        self._check_stopped(stopped)
        loop = {"loop": seen.loop}
        self.say("resumed")
        resumed = self._checked(self._start(at=stopped.scratch, **loop), "the resumed run")
        before = resumed.looked(self.at)
        units = differing(seen.values, before.values) if before else {}
        self.say("straight again")
        copy = {"paths": sorted(paths_of(units.values())), "to": str(straight.scratch.parent / "values")}
        again = self._checked(self._start(at=None, copy=copy), "the second straight run")
        self.comparing.exclude(straight.fingerprint, again.fingerprint)
        twin = again.looked(self.at)
        candidates = only(units, seen.values, twin.values if twin else {})
        ignored = _ignored(straight.scratch)
        tried = [unit for unit in candidates if unit.place not in ignored]
        resume = _Resume(self, stopped.scratch, copy, seen)
        trials = Trials(self.comparing, self.at, straight.fingerprint, resumed.fingerprint, resume)
        confirmed, notes = trials.judge(tried), trials.notes
        suspects = self._suspects(looks, candidates, before, confirmed, notes)
        return Audit(
            self.at,
            self.until,
            exact=self.comparing.first(straight.fingerprint, resumed.fingerprint) is None,
            explained=trials.explained,
            confirmed=tuple(_confirmed(unit, notes[unit.place], seen) for unit in confirmed),
            suspects=tuple(each for each in suspects if each.place not in ignored),
            ignored={place: ignored[place] for place in sorted(ignored)},
            undetermined=tuple(sorted(self.comparing.excluded)),
            skipped=seen.skipped,
            processes=self.processes.count,
        )

    def _start(self, *, at: Path | None, **orders: Any) -> Outcome:
        look_at = [self.at] if at is not None else [self.at - 1, self.at, self.at + 1]
        return self.processes.start(until=self.until, at=at, orders={"look_at": look_at, "at": self.at, **orders})

    def _checked(self, outcome: Outcome, what: str) -> Outcome:
        if outcome.failed:
            raise UsageError(f"{what} ended with exit code {outcome.code}. It said last:\n{outcome.said}")
        if not outcome.links:
            raise UsageError(f"{what} opened no run: the script must use perdure.Run. It said last:\n{outcome.said}")
        return outcome

    def _look_of(self, straight: Outcome) -> Seeing:
        seen = straight.looked(self.at)
        if seen is not None and seen.loop is not None:
            return seen
        last = max(link.boundary for link in straight.links)
        problem = f"it ended at boundary {last}, and no turn begins after boundary {self.at}. Give a smaller --at"
        if last > self.at:
            problem = "boundary is not called in a loop whose source can be read, so that no point can be compared"
        raise UsageError(f"the straight run: {problem}.")

    def _check_stopped(self, stopped: Outcome) -> None:
        if stopped.code != Preempted.CODE:
            problem = f"stopped at boundary {self.at} it ended with exit code {stopped.code}, not {Preempted.CODE}"
            raise UsageError(f"the interrupted run: {problem}. It said last:\n{stopped.said}")

    def _suspects(
        self,
        looks: Mapping[int, Seeing],
        candidates: list[Unit],
        resumed: Seeing | None,
        confirmed: list[Unit],
        notes: Mapping[str, str],
    ) -> list[AuditFinding]:
        """What changes from turn to turn, is in no checkpoint, and was not confirmed."""
        told = {unit.place for unit in confirmed}
        found = {unit.place: (unit, notes.get(unit.place, "")) for unit in candidates if unit.place not in told}
        here = looks[self.at]
        for at in (self.at - 1, self.at + 1):
            other = looks.get(at)
            for place, unit in differing(here.values, other.values).items() if other else ():
                if place not in told and place not in found and not _came_back(unit, here, resumed):
                    found[place] = unit, _NOT_THERE
        return [_suspect(*found[place], here) for place in sorted(found)]


_NOT_THERE = "it changes from turn to turn; two straight runs disagree on it, or the resumed process has no such thing"


def _came_back(unit: Unit, here: Seeing, resumed: Seeing | None) -> bool:
    """Whether the resumed process holds what the straight one holds, wherever it has it from.

    A local variable that it does not have yet is written before it is read: Python would refuse to read it.
    """
    there = resumed.values if resumed else {}
    root, _, below = unit.place.partition(": ")
    if root.startswith("frame ") and resumed is not None and root in resumed.files:
        variable = f"{root}: {re.split(_END_OF_NAME, below, maxsplit=1)[0]}"
        if not any(_is_part(variable, path) for path in there):
            return True
    return all(path in there and there[path].digest == here.values[path].digest for path in unit.paths)


_END_OF_NAME = re.compile(r"\W")


def _is_part(place: str, path: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


@dataclass
class _Resume:
    """Resumes the interrupted run in a new process, with some of the straight run's values put into it."""

    auditor: _Auditor
    scratch: Path
    copy: Mapping[str, Any]
    seen: Seeing

    def __call__(self, units: Sequence[Unit]) -> Outcome:
        names = ", ".join(unit.place for unit in units[:3])
        self.auditor.say(f"resumed, put right: {names or 'nothing'}{', …' if len(units) > 3 else ''}")
        numbers = {path: at for at, path in enumerate(self.copy["paths"])}
        straight = {path: seen.digest for path, seen in self.seen.values.items()}
        wanted = {path: numbers[path] for path in paths_of(units)}
        put = {"from": self.copy["to"], "numbers": wanted, "straight": straight}
        return self.auditor._start(at=self.scratch, loop=self.seen.loop, put=put)


def _ignored(scratch: Path) -> dict[str, str]:
    """What the scripts' contracts say."""
    found: dict[str, str] = {}
    for run in sorted(scratch.iterdir()):
        record = RunDirectory(run).record
        if record.exists():
            found |= {place: str(why) for place, why in read_record(record).contract.get(AUDIT, {}).items()}
    return found


def _confirmed(unit: Unit, note: str, seen: Seeing) -> AuditFinding:
    kind = seen.values[unit.paths[0]].kind
    advice = advice_for(unit.place, kind=kind, is_value=unit.is_value)
    where = where_assigned(unit.place, seen.files)
    return AuditFinding(unit.place, True, unit.first, unit.second, len(unit.paths), where, advice, note)


def _suspect(unit: Unit, note: str, seen: Seeing) -> AuditFinding:
    where = where_assigned(unit.place, seen.files)
    return AuditFinding(unit.place, False, unit.first, unit.second, len(unit.paths), where, "", note)
