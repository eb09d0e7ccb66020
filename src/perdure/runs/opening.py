"""Opening a run: a fresh one commits boundary 0, an old one goes on from its newest intact checkpoint."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Captured, Counters, capture, empty_rings
from perdure.checkpoint.opening import Opened
from perdure.checkpoint.restore import Conditions, Restored, restore
from perdure.contract.arithmetic import arithmetic
from perdure.contract.horizon import Progress, progress_of, total_of
from perdure.contract.sections import START
from perdure.errors import UsageError
from perdure.runs.begin import Beginning
from perdure.runs.chain import Chain
from perdure.runs.choosing import rankings_of
from perdure.runs.code import Code, code_at_launch
from perdure.runs.committer import Committer, Past, Terms
from perdure.runs.contract_terms import ContractTerms, Verdict, judge
from perdure.runs.crash_loop import refuse_crash_loop
from perdure.runs.directory import RunDirectory
from perdure.runs.journal import Journal
from perdure.runs.loading import Found, newest_intact
from perdure.runs.lock import WriterLock
from perdure.runs.optimizer_states import optimizers_with_state
from perdure.runs.orders import Orders
from perdure.runs.record import START_DIRECTORY, launch_of, new_record, read_record, write_record
from perdure.runs.requirement import check_class
from perdure.runs.resumption import (
    Resumption,
    accepted_for,
    has_pending_launch,
    latest_launch,
    launch_to_keep,
    read_history,
    told_acceptances,
)
from perdure.runs.sinks import Sinks
from perdure.runs.surroundings import surroundings_now
from perdure.runs.unchanged import Fixed, fixed_parts
from perdure.runs.variables import variables_now
from perdure.store.local import REMOVED_PREFIX
from perdure.store.small_files import replace_durably
from perdure.tree.leaves import owned
from perdure.tree.snapshot import CLASSES, Snapshot

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
    """How it commits."""
    contract_terms: ContractTerms
    """What must stay the same."""
    launch: Mapping[str, Any] | None
    """How it was launched; None: this script's command line."""
    start: Counters
    """Where a fresh run starts counting."""
    strict: bool
    """Refuse to step back."""
    lock: WriterLock
    """Held by the caller."""
    orders: Orders
    """What whoever started this process has to say."""
    requires: str = CLASSES[1]
    """The weakest continuation class that will do."""
    sinks: Sinks = field(default_factory=Sinks)
    """Where metric rows go besides."""
    policy: Sequence[str] = ()
    """The components that the script calls its policy."""
    variables: Sequence[str] = ()
    """Environment variables that the record keeps beside the known ones."""

    def said(self) -> dict[str, Any]:
        """What the lineage keeps of the script's words, for whoever looks at the run from outside."""
        ranks = [[ranking.metric, ranking.mode] for ranking in rankings_of(self.terms.keep)]
        return {"ranks": ranks, "policy": list(self.policy)}


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
    fixed: Fixed
    """What its components, as they were handed in, have in common with every checkpoint."""
    resumed: bool
    """Whether it went on from a checkpoint."""
    chain: Chain | None
    """Its digest chain, if it keeps one."""
    progress: Progress | None
    """How far schedules are; None without a total of steps."""
    notices: list[str] = field(default_factory=list)
    """What the user should know: damage stepped back from, rows cut, changed libraries."""


def open_run(opening: Opening) -> OpenRun:
    """Begins or resumes.

    Order of a resume: verify, contract, check all, apply, generators last, capture again; only then are metric rows
    cut back and damaged checkpoints moved aside.

    Raises:
        AllDamagedError: no checkpoint is intact.
        ContractError: configuration, seed or structure differ; nothing was changed.
        CaptureError: a component allows only a weaker class than the run requires.
        RestoreError: applying failed; the state from before was put back.
        CommitError: boundary 0 of a fresh run could not be committed.
    """
    return _resume(opening) if opening.beginning.resumes else _begin(opening)


def _chain(opening: Opening, journal: Journal, snapshot: Snapshot) -> Chain | None:
    """The chain, cut back to where the run begins or goes on."""
    if opening.orders.chain_every is None:
        return None
    chain = Chain(opening.directory.chain, opening.orders.chain_every)
    chain.begin(snapshot, journal.metrics.mark()["digest"])
    return chain


def check_beginning(directory: RunDirectory, beginning: Beginning, terms: ContractTerms) -> None:
    """Refuses acceptances where there is nothing to resume.

    Raises:
        UsageError: there are some.
    """
    if terms.overrides.given and not beginning.resumes:
        problem = "nothing to accept: there is no run yet that could differ. Check the spelling."
        raise UsageError(f"{directory.path}: {problem}")


def _begin(opening: Opening) -> OpenRun:
    check_beginning(opening.directory, opening.beginning, opening.contract_terms)
    captured = capture(opening.targets, opening.resolver, opening.start)
    check_class(captured, opening.requires)
    contract = opening.contract_terms.contract(captured)
    code, variables = _kept_code(opening.directory), variables_now(opening.variables)
    record = new_record(opening.launch, contract, arithmetic(), code and code.facts(), variables)
    write_record(opening.directory.record, record)
    journal = Journal(opening.directory, opening.sinks)
    try:
        notices = [opening.beginning.notice] if opening.beginning.notice else []
        notices = _told(opening.directory, [*notices, *_leftovers(opening.directory)])
        journal.lineage.append("started", run_id=record.run_id, notices=notices, **opening.said())
        journal.metrics.cut_back(None)
        total = total_of(contract.get("horizon", {}))
        journal.begin_sinks(record.run_id, opening.start, total, trained_s=0.0, resumed=False)
        committer = _committer(opening, journal, record.run_id, Past(contract))
        committer.commit(lambda: captured.snapshot, None, at_once=True)
        chain = _chain(opening, journal, captured.snapshot)
    except BaseException:
        journal.close()
        raise
    restored = Restored(dict(opening.targets), captured.values)
    progress, fixed = progress_of(contract), fixed_parts(captured.snapshot)
    return OpenRun(
        journal,
        committer,
        opening.start,
        restored,
        fixed,
        resumed=False,
        chain=chain,
        progress=progress,
        notices=notices,
    )


def _kept_code(directory: RunDirectory) -> Code | None:
    """The code that this process was launched with; its patch is written first, for the record counts it."""
    code = code_at_launch(START_DIRECTORY)
    if code is not None and code.patch is not None:
        replace_durably(directory.patch, code.patch.encode())
    else:
        directory.patch.unlink(missing_ok=True)  # of a process that was killed before its first checkpoint
    return code


def _resume(opening: Opening) -> OpenRun:
    directory, terms = opening.directory, opening.contract_terms
    record = read_record(directory.record)
    found = newest_intact(
        directory.store(),
        str(directory.path),
        record.run_id,
        strict=opening.strict,
        rings=lambda: empty_rings(opening.targets, opening.resolver),
    )
    opened, manifest = found.opened, found.opened.manifest
    history, unreadable = read_history(directory)
    if not opening.orders.retry:
        refuse_crash_loop(history, opened.name, str(directory.path))
    fresh = capture(opening.targets, opening.resolver, Counters())
    check_class(fresh, opening.requires)
    verdict = judge(terms, terms.contract(fresh), manifest)
    restored = _restored(opening, opened, frozenset(accepted_for(history, opened.digest)), fresh, verdict)
    surroundings = surroundings_now(record, history, opening.variables)
    journal = Journal(directory, opening.sinks)
    try:
        told = [*verdict.notices, *surroundings.notices, *told_acceptances(restored)]
        notices = [*unreadable, *_tidied(directory, journal, found), *told]
        notices = _told(directory, notices)
        # Also if a change from this checkpoint was given up again: what was kept for it must not be repeated.
        changes_contract = bool(restored.accepted or verdict.totals) or has_pending_launch(history, opened.digest)
        before = latest_launch(record, history)
        launch = launch_to_keep(launch_of(opening.launch), before, changes_contract=changes_contract)
        resumption = Resumption(found, restored, verdict, terms.overrides.reason, launch, notices)
        journal.lineage.append("resumed", **resumption.facts(), **surroundings.facts(), **opening.said())
        counters = Counters(manifest.env_steps, manifest.updates, manifest.boundary)
        total, trained_s = total_of(verdict.contract.get("horizon", {})), manifest.trained_s
        journal.begin_sinks(record.run_id, counters, total, trained_s=trained_s, resumed=True)
    except BaseException:
        journal.close()
        raise
    amended = (*manifest.amended, *(pair.text for pair in restored.accepted))
    optimizers = optimizers_with_state(opened.snapshot)
    past = Past(verdict.contract, opened.digest, amended, manifest.trained_s, optimizers, opened.as_saved())
    committer = _committer(opening, journal, record.run_id, past)
    progress, fixed = verdict.progress, fixed_parts(fresh.snapshot)
    return OpenRun(
        journal,
        committer,
        counters,
        restored,
        fixed,
        resumed=True,
        chain=_chain(opening, journal, opened.snapshot),
        progress=progress,
        notices=notices,
    )


def _restored(
    opening: Opening, opened: Opened, recorded: frozenset[str], fresh: Captured, verdict: Verdict
) -> Restored:
    """The checkpoint goes into the targets, or nothing does; `recorded` was accepted at earlier resumes."""
    manifest = opened.manifest
    overrides = opening.contract_terms.overrides
    overrides = replace(overrides, recorded=recorded, amended=frozenset(manifest.amended))
    saved, digests = opened.snapshot, opened.digests
    if opening.orders.left_fresh is not None:
        saved, digests = _without(saved, opening.orders.left_fresh, fresh.snapshot), None
    return restore(
        saved,
        opening.targets,
        opening.resolver,
        f"{opening.directory.path}, {opened.name}",
        digests=digests,
        conditions=Conditions(verdict.findings, overrides, manifest.contract.get(START, {}), fresh),
    )


def _without(saved: Snapshot, name: str, fresh: Snapshot) -> Snapshot:
    """The saved state with one component as a fresh start has it.

    Raises:
        UsageError: there is no such component.
    """
    if name not in saved.components or name not in fresh.components:
        raise UsageError(f"PERDURE_LEAVE_FRESH={name!r}: no such component; there are {sorted(saved.components)}.")
    part = fresh.components[name]
    return replace(saved, components={**saved.components, name: replace(part, tree=owned(part.tree))})


def _committer(opening: Opening, journal: Journal, run_id: str, past: Past) -> Committer:
    return Committer(opening.directory, journal, run_id, opening.terms, past, opening.lock.reassert)


def _tidied(directory: RunDirectory, journal: Journal, found: Found) -> list[str]:
    """Brings the directory back to the restored boundary; returns what had to be done."""
    cut = journal.metrics.cut_back(found.opened.manifest.metrics)
    moved = {name: directory.store().set_aside(name) for name in found.damage}
    stepped = [
        f"stepped back over a damaged checkpoint: {problem}. It was moved to {moved[name]}."
        for name, problem in found.damage.items()
    ]
    torn = journal.lineage.torn_bytes
    lineage = [f"{directory.lineage.name}: a torn last line of {torn} bytes was cut off."] if torn else []
    return [*stepped, *([cut] if cut else []), *lineage, *_leftovers(directory)]


def _leftovers(directory: RunDirectory) -> list[str]:
    try:
        removed = [*directory.store().remove_leftovers(), *directory.policy_store().remove_leftovers()]
    except OSError as error:  # a file that is open elsewhere, on a network disk: no reason not to train
        return [f"what a stopped process left behind could not be removed ({error}); the next resume tries again."]
    return [f"removed {name}, {_kind_of(name)} that a stopped process left behind." for name in removed]


def _kind_of(leftover: str) -> str:
    return "a half-removed checkpoint" if leftover.startswith(REMOVED_PREFIX) else "an unfinished checkpoint"


def _told(directory: RunDirectory, notices: list[str]) -> list[str]:
    for notice in notices:
        _log.warning("%s: %s", directory.path, notice)
    return notices
