"""The audit: which variables of a script matter, and are in no checkpoint.

The script runs straight, twice, and is interrupted once, in fresh processes. Where a turn of its loop begins, all that
can be reached is compared: what differs in the resumed process, and does not in the two straight ones, is put right
there, and the run goes on. What then becomes different was read before it was written
([decision 13](docs/decisions/0013-audit.md)).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.contract.sections import AUDIT
from perdure.errors import Preempted, UsageError
from perdure.memory.look import Seen
from perdure.proof.audit_findings import Audit, confirmed_finding, suspected
from perdure.proof.audit_processes import Outcome, Processes, Seeing
from perdure.proof.audit_trials import Comparing, Trials
from perdure.proof.audit_units import Unit, differing, only, paths_of
from perdure.proof.resumes import resumed_elsewhere
from perdure.runs.directory import RunDirectory
from perdure.runs.record import read_record

AT, UNTIL = 3, 6
"""Boundaries at which a script is interrupted, and up to which it is compared, unless told otherwise."""
TIMEOUT_S = 600.0
"""How long each process may take, unless told otherwise."""

Say = Callable[[str], None]
"""Told of each step."""


def audit(
    command: Sequence[str],
    *,
    at: int = AT,
    until: int = UNTIL,
    timeout_s: float = TIMEOUT_S,
    scratch: Path | None = None,
    say: Say | None = None,
) -> Audit:
    """Audits a script.

    Args:
        command: the script with its arguments, as one starts it.
        at: the boundary at which it is interrupted, from 1.
        until: the boundary up to which it runs, greater than `at`.
        timeout_s: how long each process may take.
        scratch: a folder for its runs, which stays; None: a temporary one.
        say: told of each step.

    Raises:
        UsageError: the script cannot be started, fails by itself, takes too long, opens no run, never gets to `at`, or
            cannot be resumed there.
    """
    say = say or (lambda step: None)
    if at < 1 or until <= at:
        raise UsageError(f"--at {at} --until {until}: --at is from 1, and --until is greater.")
    if scratch is not None:
        return _Auditor(Processes(command, scratch, timeout_s), at, until, say).audit()
    with tempfile.TemporaryDirectory(prefix="perdure-audit-") as folder:
        return _Auditor(Processes(command, Path(folder), timeout_s), at, until, say).audit()


@dataclass(frozen=True)
class _Observed:
    """What the runs without an intervention showed."""

    straight: Outcome
    seen: Seeing
    stopped: Outcome
    resumed: Outcome
    before: Seeing
    units: Mapping[str, Unit]
    copy: Mapping[str, Any]
    again: Mapping[str, Seen]


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
        observed = self._observe()
        straight, seen = observed.straight, observed.seen
        ignored = _ignored(straight.scratch)
        candidates = only(observed.units, seen.values, observed.again)
        resume = _Resume(self, observed.stopped.scratch, observed.copy, seen)
        trials = Trials(self.comparing, self.at, straight.fingerprint, observed.resumed.fingerprint, resume)
        confirmed = trials.judge([unit for unit in candidates if unit.place not in ignored])
        told = {unit.place for unit in confirmed} | ignored.keys()
        suspects = suspected(straight.looks, self.at, observed.before, candidates, trials.notes)
        return Audit(
            self.at,
            self.until,
            exact=self.comparing.first(straight.fingerprint, observed.resumed.fingerprint) is None,
            explained=trials.explained,
            confirmed=tuple(confirmed_finding(unit, trials.notes[unit.place], seen) for unit in confirmed),
            suspects=tuple(each for each in suspects if each.place not in told),
            ignored={place: ignored[place] for place in sorted(ignored)},
            undetermined=tuple(sorted(self.comparing.excluded)),
            skipped=seen.skipped,
            processes=self.processes.count,
        )

    def _observe(self) -> "_Observed":
        self.say(f"straight, up to boundary {self.until}")
        straight = self._checked(self._start(at=None), "the straight run")
        seen = self._look_of(straight)
        self.say(f"interrupted at boundary {self.at}")
        stopped = self.processes.start(until=self.at, orders={"look_at": []})
        self._check_stopped(stopped)
        self.say("resumed")
        resumed = self._checked(self._start(at=stopped.scratch, loop=seen.loop), "the resumed run")
        if problem := resumed_elsewhere(straight.scratch, resumed.scratch, self.at):
            raise UsageError(f"the resumed run: {problem}")
        before = resumed.looked(self.at)
        if before is None:
            raise UsageError(f"the resumed run never came to the loop of {seen.loop}, so that nothing can be compared.")
        units = differing(seen.values, before.values)
        self.say("straight again")
        copy = {"paths": sorted(paths_of(units.values())), "to": str(straight.scratch.parent / "values")}
        again = self._checked(self._start(at=None, copy=copy), "the second straight run")
        self.comparing.exclude(straight.fingerprint, again.fingerprint)
        if all(name in self.comparing.excluded for _, name in straight.fingerprint):
            problem = "two straight runs differ in every component: it is not deterministic, or not seeded"
            raise UsageError(f"the script: {problem}. `perdure prove` names the first leaf.")
        twin = again.looked(self.at)
        return _Observed(straight, seen, stopped, resumed, before, units, copy, twin.values if twin else {})

    def _start(self, *, at: Path | None, **orders: Any) -> Outcome:
        look_at = [self.at] if at is not None else [self.at - 1, self.at, self.at + 1]
        return self.processes.start(until=self.until, at=at, orders={"look_at": look_at, "at": self.at, **orders})

    def _checked(self, outcome: Outcome, what: str) -> Outcome:
        if outcome.failed:
            raise UsageError(f"{what} ended with exit code {outcome.code}. It said last:\n{outcome.said}")
        if not any(outcome.chains.values()):
            raise UsageError(f"{what} opened no run: the script must use perdure.Run. It said last:\n{outcome.said}")
        return outcome

    def _look_of(self, straight: Outcome) -> Seeing:
        seen = straight.looked(self.at)
        if seen is not None and seen.loop is not None:
            return seen
        problem = (
            f"it ended at boundary {straight.last}, and no turn begins after boundary {self.at}. Give a smaller --at"
        )
        if straight.last > self.at:
            problem = "boundary is not called in a loop whose source can be read, so that no point can be compared"
        raise UsageError(f"the straight run: {problem}.")

    def _check_stopped(self, stopped: Outcome) -> None:
        if stopped.code not in (0, Preempted.CODE) or stopped.last != self.at:  # a wrapper may end with 0
            problem = f"stopped at boundary {self.at} it ended with exit code {stopped.code}, not {Preempted.CODE}"
            raise UsageError(f"the interrupted run: {problem}. It said last:\n{stopped.said}")


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
