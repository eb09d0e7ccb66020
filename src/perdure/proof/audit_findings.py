"""What an audit tells: findings, confirmed or suspect, with where they are assigned and what to add."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perdure.proof.audit_processes import Seeing
from perdure.proof.audit_sources import advice_for, where_assigned
from perdure.proof.audit_units import Unit, differing


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


def confirmed_finding(unit: Unit, note: str, seen: Seeing) -> AuditFinding:
    """The finding of a unit that makes the resume exact."""
    kind = seen.values[unit.paths[0]].kind
    advice = advice_for(unit.place, kind=kind, is_value=unit.is_value)
    where = where_assigned(unit.place, seen.files)
    return AuditFinding(unit.place, True, unit.first, unit.second, len(unit.paths), where, advice, note)


def suspected(
    looks: Mapping[int, Seeing], at: int, resumed: Seeing, candidates: list[Unit], notes: Mapping[str, str]
) -> list[AuditFinding]:
    """What differs after the resume, or changes from turn to turn and does not come back with the resume.

    Args:
        looks: of the straight run, by boundary.
        at: the boundary of the interruption.
        resumed: the look of the resumed run there.
        candidates: what differs between the two, and not between two straight runs.
        notes: what interventions showed, by place.
    """
    found = {unit.place: (unit, notes.get(unit.place, "")) for unit in candidates}
    here = looks[at]
    for other in (looks[each] for each in (at - 1, at + 1) if each in looks):
        for place, unit in differing(here.values, other.values).items():
            if place not in found and not _came_back(unit, here, resumed):
                found[place] = unit, _NOT_THERE
    return [_suspect(*found[place], here) for place in sorted(found)]


def _suspect(unit: Unit, note: str, seen: Seeing) -> AuditFinding:
    where = where_assigned(unit.place, seen.files)
    return AuditFinding(unit.place, False, unit.first, unit.second, len(unit.paths), where, "", note)


_NOT_THERE = "it changes from turn to turn; two straight runs disagree on it, or the resumed process has no such thing"
_END_OF_NAME = re.compile(r"\W")


def _came_back(unit: Unit, here: Seeing, resumed: Seeing) -> bool:
    """Whether the resumed process holds what the straight one holds, wherever it has it from.

    A local variable that it does not have yet is written before it is read: Python would refuse to read it.
    """
    there = resumed.values
    root, _, below = unit.place.partition(": ")
    if root.startswith("frame ") and root in resumed.files:
        variable = f"{root}: {re.split(_END_OF_NAME, below, maxsplit=1)[0]}"
        if not any(_is_part(variable, path) for path in there):
            return True
    return all(path in there and there[path].digest == here.values[path].digest for path in unit.paths)


def _is_part(place: str, path: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))
