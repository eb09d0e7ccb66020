"""What the lineage keeps of a resume, and what it says to the next one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.checkpoint.restore import Restored
from perdure.contract.horizon import total_of
from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.runs.contract_terms import Verdict
from perdure.runs.directory import RunDirectory, newest_first
from perdure.runs.lineage import read_lineage
from perdure.runs.loading import Found
from perdure.runs.record import RunRecord

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Resumption:
    """A resume that succeeded."""

    found: Found
    """The checkpoint, and the newer ones that were damaged."""
    restored: Restored
    """What was restored, accepted and amended."""
    verdict: Verdict
    """What the contracts said."""
    reason: str | None
    """Why somebody accepted something."""
    launch: Mapping[str, Any] | None
    """How this process was launched, where that must be kept; None: as before."""
    notices: list[str]
    """What the user was told."""

    def facts(self) -> dict[str, Any]:
        """What the lineage keeps."""
        opened, amended = self.found.opened, self.restored.amended
        accepted = [
            {"text": pair.text, **({"implied_by": pair.implied_by} if pair.implied_by else {})}
            for pair in self.restored.accepted
        ]
        return {
            "checkpoint": opened.name,
            "digest": opened.digest,
            "env_steps": opened.manifest.env_steps,
            "trained_s": opened.manifest.trained_s,
            "stepped_back": dict(self.found.damage),
            "accepted": accepted,
            "amended_leaves": list(amended.applied) if amended else [],
            "reason": self.reason if accepted else None,
            "arithmetic": {name: list(pair) for name, pair in self.verdict.arithmetic.items()},
            "total": total_of(self.verdict.contract.get("horizon", {})),
            "old_total": self.verdict.totals[0] if self.verdict.totals else None,
            "launch": self.launch,
            "notices": list(self.notices),
        }


def read_history(directory: RunDirectory) -> tuple[list[dict[str, Any]], list[str]]:
    """The lineage so far, and what is wrong with it.

    A damaged or lost one costs what it says about earlier acceptances and launches, never the run.
    """
    try:
        events = read_lineage(directory.lineage)
    except DamagedError as error:
        return [], [f"{error}. {_INDEPENDENT}"]
    if not events and any(newest_first(directory.store().names())):
        return [], [f"{directory.lineage.name} is missing or empty. {_INDEPENDENT}"]
    return events, []


_INDEPENDENT = "The checkpoints do not depend on it; acceptances in it do not count."


def accepted_for(history: Iterable[Event], digest: str) -> list[str]:
    """What earlier resumes from the very same checkpoint accepted; they were stopped before the next commit."""
    return [
        acceptance["text"]
        for event in history
        if event["event"] == "resumed" and event["digest"] == digest
        for acceptance in event["accepted"]
        if "implied_by" not in acceptance
    ]


def has_pending_launch(history: Iterable[Event], digest: str) -> bool:
    """Whether an earlier resume from the very same checkpoint was launched in a way that was kept."""
    resumes = (event for event in history if event["event"] == "resumed" and event["digest"] == digest)
    return any(event["launch"] is not None for event in resumes)


def latest_launch(record: RunRecord, history: Iterable[Event]) -> Mapping[str, Any]:
    """How the run was launched last: a resume that changed the contract on record counts, others repeat the first."""
    launches = [event["launch"] for event in history if event["event"] == "resumed" and event["launch"] is not None]
    return launches[-1] if launches else record.launch


_ONE_OFF = ("keep_last",)
"""What is said to one resume alone."""


def launch_to_keep(
    now: Mapping[str, Any], before: Mapping[str, Any], *, changes_contract: bool
) -> Mapping[str, Any] | None:
    """How this process was launched, if `perdure resume` is to do it like that from now on.

    A trainer's options are the run's, whenever they are others. A script may be resumed from anywhere (a notebook, a
    test): its command counts if the contract changed with it.
    """
    now = {**now, **{name: before[name] for name in _ONE_OFF if name in before and name in now}}
    is_other = canonical.encode(now) != canonical.encode(dict(before))
    return now if is_other and (changes_contract or now.get("kind") == "trainer") else None


def latest_total(record: RunRecord, history: Iterable[Event]) -> int | None:
    """The total of environment steps that the run goes for."""
    totals = [event["total"] for event in history if event["event"] == "resumed"]
    return totals[-1] if totals else total_of(record.contract.get("horizon", {}))


def told_acceptances(restored: Restored) -> list[str]:
    """Acceptances in words, and where they went."""
    told = [
        f"accepted: {pair.text}{f', as {pair.implied_by} was' if pair.implied_by else ''}."
        for pair in restored.accepted
    ]
    amended = restored.amended
    if amended and amended.applied:
        told.append(f"accepted values were put into the state at {', '.join(amended.applied)}.")
    if amended and amended.unlike:
        listed = ", ".join(amended.unlike)
        told.append(f"these start with another number than the run did, and keep the checkpoint's: {listed}.")
    return told
