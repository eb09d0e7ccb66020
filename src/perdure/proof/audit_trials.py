"""Interventions: the straight run's values are put into resumed processes, where a turn begins.

A variable is confirmed if the resume is exact with its value put right, and is not without; or, where no set of
variables makes it exact, if its value alone makes right what was wrong and nothing wrong that was right. That
putting a value changes something is not enough: a generator that was begun further on, by a counter that was restored,
holds other values than the straight run's and goes on exactly as it did.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.proof.audit_processes import Fingerprint, Outcome
from perdure.proof.audit_units import Unit

Resume = Callable[[Sequence[Unit]], Outcome]
"""Resumes with these put right."""


@dataclass
class Comparing:
    """What two runs are compared by."""

    after: int
    """The boundary from which on they could differ."""
    excluded: set[str] = field(default_factory=set)
    """Components that tell nothing, for two equal runs already differ in them."""

    def exclude(self, first: Fingerprint, second: Fingerprint) -> None:
        """Leaves out the components in which these two differ, which should be equal."""
        keys = first.keys() | second.keys()
        self.excluded |= {name for at, name in keys if first.get((at, name)) != second.get((at, name))}

    def differing(self, first: Fingerprint, second: Fingerprint) -> set[tuple[int, str]]:
        """Where two runs differ."""
        keys = {key for key in first.keys() | second.keys() if key[1] not in self.excluded and key[0] > self.after}
        return {key for key in keys if first.get(key) != second.get(key)}

    def first(self, first: Fingerprint, second: Fingerprint) -> str | None:
        """In what two runs differ first, as a person reads it; None: in nothing."""
        differ = self.differing(first, second)
        if not differ:
            return None
        boundary = min(differ)[0]
        return f"{', '.join(sorted(name for at, name in differ if at == boundary))} at boundary {boundary}"


@dataclass
class Trials:
    """The interventions of one audit."""

    comparing: Comparing
    """How runs are compared."""
    at: int
    """The boundary at which the script was interrupted."""
    straight: Fingerprint
    """The run that was never interrupted."""
    resumed: Fingerprint
    """The resumed run as it is."""
    resume: Resume
    """Starts a process."""
    notes: dict[str, str] = field(default_factory=dict)
    """What there is to say of each unit, by place."""
    explained: bool = True
    """Whether the resume is exact with what was confirmed put right."""
    _outcomes: dict[frozenset[str], Outcome] = field(default_factory=dict)

    def judge(self, units: list[Unit]) -> list[Unit]:
        """Those that are confirmed."""
        if not self._is_wrong(self.resumed):
            self.notes |= {unit.place: "it differs after the resume, which is exact all the same" for unit in units}
            return []
        self.explained = False
        if not units:
            return []
        self.comparing.exclude(self.resumed, self._outcome([]).fingerprint)
        effective = self._effective(units)
        sufficient = next((some for some in _most_of(effective) if self._repairs(some)), None)
        if sufficient is None:
            return self._conclude(effective, [unit for unit in effective if self._helps(unit)])
        self.explained = True
        for unit in list(sufficient):
            fewer = [other for other in sufficient if other is not unit]
            if fewer and self._repairs(fewer):
                sufficient = fewer
        return self._conclude(effective, sufficient)

    def _conclude(self, effective: list[Unit], confirmed: list[Unit]) -> list[Unit]:
        for unit in effective:
            effect = self.comparing.first(self.resumed, self._outcome([unit]).fingerprint)
            doubt = "" if unit in confirmed else ", but the resume does not become exact by it"
            self.notes[unit.place] = f"put right, it changes {effect}{doubt}"
        return confirmed

    def _is_wrong(self, found: Fingerprint) -> bool:
        return bool(self.comparing.differing(self.straight, found))

    def _repairs(self, units: Sequence[Unit]) -> bool:
        outcome = self._outcome(units)
        return bool(units) and not outcome.failed and not self._is_wrong(outcome.fingerprint)

    def _helps(self, unit: Unit) -> bool:
        """Whether it makes something right, and nothing wrong."""
        wrong = self.comparing.differing(self.straight, self.resumed)
        still = self.comparing.differing(self.straight, self._outcome([unit]).fingerprint)
        return still < wrong

    def _effective(self, units: list[Unit]) -> list[Unit]:
        """Those that change anything, found by halves: a group without effect is done with."""
        outcome = self._outcome(units)
        effect = self.comparing.first(self.resumed, outcome.fingerprint)
        if len(units) > 1 and (outcome.failed or effect is not None):
            half = len(units) // 2
            return self._effective(units[:half]) + self._effective(units[half:])
        look = outcome.looked(self.at)
        problems = look.problems if look else {}
        for unit in units:
            failed = [problems[path] for path in unit.paths if path in problems]
            self.notes[unit.place] = _note(outcome, failed)
        return units if effect is not None and not outcome.failed else []

    def _outcome(self, units: Sequence[Unit]) -> Outcome:
        key = frozenset(unit.place for unit in units)
        if key not in self._outcomes:
            self._outcomes[key] = self.resume(units)
        return self._outcomes[key]


def _most_of(units: list[Unit]) -> list[list[Unit]]:
    """All of them, and all but one each; what leaves none is left out."""
    return [some for some in [units, *([u for u in units if u is not one] for one in units)] if some]


def _note(outcome: Outcome, failed: list[str]) -> str:
    if outcome.failed:
        lines = outcome.said.splitlines()
        return f"it could not be tried: put right, the script ended with {lines[-1] if lines else outcome.code}"
    if failed:
        return f"it could not be tried: {failed[0].rstrip('.')}"
    return "it differs after the resume, but putting it right changed nothing"
