"""Opening a run: a fresh one commits boundary 0, an old one goes on from its newest intact checkpoint."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.restore import Restored, restore
from perdure.contract.arithmetic import arithmetic, changes
from perdure.contract.comparison import compare
from perdure.runs.begin import Beginning
from perdure.runs.committer import Committer, Terms
from perdure.runs.directory import RunDirectory
from perdure.runs.journal import Journal
from perdure.runs.loading import Found, newest_intact
from perdure.runs.lock import WriterLock
from perdure.runs.record import new_record, read_record, write_record
from perdure.store.local import REMOVED_PREFIX

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class Opening:
    """What it takes to open a run. The caller holds the writer lock."""

    directory: RunDirectory
    """Where."""
    beginning: Beginning
    """Whether to begin or to resume."""
    targets: Mapping[str, Any]
    """All components, the process's generators included."""
    resolver: Resolver
    """Finds their adapters."""
    terms: Terms
    """How it commits; holds the contract."""
    launch: Mapping[str, Any] | None
    """How it was launched; None: this script's command line."""
    start: Counters
    """Where a fresh run starts counting."""
    strict: bool
    """Refuse to step back."""
    lock: WriterLock
    """Held by the caller."""


@dataclass
class OpenRun:
    """A run that is open for writing."""

    journal: Journal
    """Its streams."""
    committer: Committer
    """Makes its checkpoints."""
    counters: Counters
    """Where it stands."""
    restored: Restored
    """Its components."""
    resumed: bool
    """Whether it went on from a checkpoint."""
    notices: list[str] = field(default_factory=list)
    """What the user should know: damage stepped back from, rows cut, changed libraries."""


def open_run(opening: Opening) -> OpenRun:
    """Begins or resumes.

    Order of a resume: verify, contract, check all, apply, generators last, capture again; only then are metric rows
    cut back and damaged checkpoints moved aside.

    Raises:
        AllDamagedError: no checkpoint is intact.
        ContractError: configuration, seed or structure differ; nothing was changed.
        RestoreError: applying failed; the state from before was put back.
        CommitError: boundary 0 of a fresh run could not be committed.
    """
    return _resume(opening) if opening.beginning.resumes else _begin(opening)


def _begin(opening: Opening) -> OpenRun:
    captured = capture(opening.targets, opening.resolver, opening.start)
    record = new_record(opening.launch, opening.terms.contract, arithmetic())
    write_record(opening.directory.record, record)
    journal = Journal(opening.directory)
    try:
        notices = [opening.beginning.notice] if opening.beginning.notice else []
        notices = _told(opening.directory, [*notices, *_leftovers(opening.directory)])
        journal.lineage.append("started", run_id=record.run_id, notices=notices)
        journal.metrics.cut_back(None)
        committer = Committer(
            opening.directory, journal, record.run_id, opening.terms, parent=None, check_lock=opening.lock.reassert
        )
        committer.commit(lambda: captured.snapshot, None, at_once=True)
    except BaseException:
        journal.close()
        raise
    restored = Restored(dict(opening.targets), captured.values)
    return OpenRun(journal, committer, opening.start, restored, resumed=False, notices=notices)


def _resume(opening: Opening) -> OpenRun:
    directory = opening.directory
    record = read_record(directory.record)
    found = newest_intact(directory.store(), str(directory.path), record.run_id, strict=opening.strict)
    opened = found.opened
    restored = restore(
        opened.snapshot,
        opening.targets,
        opening.resolver,
        f"{directory.path}, {opened.name}",
        digests=opened.digests,
        findings=compare(record.contract, opening.terms.contract),
    )
    journal = Journal(directory)
    try:
        notices = _told(directory, _tidied(directory, journal, found))
        journal.lineage.append("resumed", checkpoint=opened.name, digest=opened.digest, notices=notices)
    except BaseException:
        journal.close()
        raise
    committer = Committer(
        directory, journal, record.run_id, opening.terms, parent=opened.digest, check_lock=opening.lock.reassert
    )
    counters = Counters(opened.manifest.env_steps, opened.manifest.updates, opened.manifest.boundary)
    return OpenRun(journal, committer, counters, restored, resumed=True, notices=notices)


def _committer(opening: Opening, journal: Journal, run_id: str, *, parent: str | None) -> Committer:
    check_lock = opening.lock.reassert
    return Committer(opening.directory, journal, run_id, opening.terms, parent=parent, check_lock=check_lock)


def _tidied(directory: RunDirectory, journal: Journal, found: Found) -> list[str]:
    """Brings the directory back to the restored boundary; returns what had to be done."""
    cut = journal.metrics.cut_back(found.opened.manifest.metrics)
    moved = {name: directory.store().set_aside(name) for name in found.damage}
    stepped = [
        f"stepped back over a damaged checkpoint: {problem}. It was moved to {moved[name]}."
        for name, problem in found.damage.items()
    ]
    changed = [
        f"arithmetic changed: {change}. The last bits of results may differ from here on."
        for change in changes(found.opened.manifest.arithmetic, arithmetic())
    ]
    return [*stepped, *([cut] if cut else []), *changed, *_leftovers(directory)]


def _leftovers(directory: RunDirectory) -> list[str]:
    try:
        removed = directory.store().remove_leftovers()
    except OSError as error:  # a file that is open elsewhere, on a network disk: no reason not to train
        return [f"what a stopped process left behind could not be removed ({error}); the next resume tries again."]
    return [f"removed {name}, {_kind_of(name)} that a stopped process left behind." for name in removed]


def _kind_of(leftover: str) -> str:
    return "a half-removed checkpoint" if leftover.startswith(REMOVED_PREFIX) else "an unfinished checkpoint"


def _told(directory: RunDirectory, notices: list[str]) -> list[str]:
    for notice in notices:
        _log.warning("%s: %s", directory.path, notice)
    return notices
