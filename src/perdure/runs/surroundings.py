"""What a resume finds around the run: its code and its environment variables, compared with what they were."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.runs import code, variables
from perdure.runs.code import Code, code_at_launch, code_before
from perdure.runs.record import START_DIRECTORY, RunRecord
from perdure.runs.variables import variables_before, variables_now


@dataclass(frozen=True)
class Surroundings:
    """What changed; a notice each, and never a refusal."""

    code: Code | None
    """The code now, where it is not as it was; None: as before, or nobody can tell."""
    variables: Mapping[str, str | None]
    """The variables that have another value, or are looked at for the first time."""
    notices: Sequence[str]
    """Changes in words."""

    def facts(self) -> dict[str, Any]:
        """What the lineage keeps of a resume."""
        return {"code": self.code and self.code.facts(), "variables": dict(self.variables)}


def surroundings_now(
    record: RunRecord, history: Iterable[Mapping[str, Any]], declared: Iterable[str] = ()
) -> Surroundings:
    """Compares with what the record and the lineage tell of the process before."""
    history = list(history)
    now, then = code_at_launch(START_DIRECTORY), code_before(record.code, history)
    code_told = code.told_changes(then, now)
    before = variables_before(record.variables, history)
    changed = variables.changes(before, variables_now(declared))
    told = [*code_told, *variables.told_changes(before, changed)]
    return Surroundings(now if code_told else None, changed, told)
