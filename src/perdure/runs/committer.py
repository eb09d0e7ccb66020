"""The committer: makes due boundaries into committed checkpoints, at once or behind the training loop's back."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.checkpoint.save import About, Saved, save
from perdure.checkpoint.writer import BackgroundWriter
from perdure.contract.arithmetic import arithmetic
from perdure.contract.redaction import redacted
from perdure.errors import CommitError, DamagedError
from perdure.format.nodes import large_leaves
from perdure.runs.directory import RunDirectory, step_name
from perdure.runs.journal import Journal
from perdure.runs.optimizer_states import optimizers_with_state, refuse_emptied
from perdure.runs.pruning import prune
from perdure.runs.retention import Keep, KeepAny
from perdure.tree.leaves import owned
from perdure.tree.paths import Path as SnapshotPath
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

AfterCommit = Callable[[Path], object]
"""Called with each committed directory, to copy it elsewhere; it may be retained away any time later."""

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class Terms:
    """How a run commits."""

    keep: Keep | KeepAny | None = None
    """What stays; None: everything."""
    background: bool = True
    """Whether a thread writes while training goes on."""
    after_commit: AfterCommit | None = None
    """The user's own hook."""


@dataclass(frozen=True)
class Past:
    """What a run brings along when it is opened, and every later checkpoint bears."""

    contract: Mapping[str, Mapping[str, Any]]
    """What must be the same for a resume."""
    digest: str | None = None
    """Digest of the newest checkpoint's manifest."""
    amended: tuple[str, ...] = ()
    """Differences that were accepted so far."""
    trained_s: float = 0.0
    """Seconds of training before this opening."""
    optimizers: frozenset[SnapshotPath] = frozenset()
    """Where PyTorch's optimizers stood that held state."""
    saved: Saved | None = None
    """The newest checkpoint, as far as the next may share its files."""


@dataclass
class _Last:
    """What the committer knows of the commits before."""

    saved: Saved | None = None
    digest: str | None = None
    number: int = 0
    optimizers: frozenset[SnapshotPath] = frozenset()
    scores: dict[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pending:
    """A boundary in memory that can be committed later."""

    snapshot: Snapshot
    """Its state; nobody else can write to it."""
    about: About
    """What its manifest says, all but its parent."""

    @property
    def counters(self) -> Counters:
        """Which boundary it is."""
        return Counters(self.snapshot.env_steps, self.snapshot.updates, self.snapshot.boundary)


class Committer:
    """Commits one snapshot after another for the holder of the writer lock."""

    def __init__(
        self,
        directory: RunDirectory,
        journal: Journal,
        run_id: str,
        terms: Terms,
        past: Past,
        check_lock: Callable[[], None],
    ) -> None:
        """Begins; the clock of the training runs from here.

        Args:
            directory: the run.
            journal: its streams.
            run_id: its id.
            terms: how it commits.
            past: what the run brings along.
            check_lock: raises if the writer lock is not held any more; called before each commit.
        """
        self._check_lock = check_lock
        self._directory = directory
        self._journal = journal
        self._run_id = run_id
        self._terms = terms
        self._past = past
        self._opened_at = time.monotonic()
        self._last = _Last(past.saved, past.digest, optimizers=past.optimizers)
        self._writer = BackgroundWriter()
        self._lock = threading.RLock()  # a signal's thread may commit beside the training loop

    @property
    def trained_s(self) -> float:
        """Seconds of training in all: those the run brought along, and those since it was opened."""
        return self._past.trained_s + time.monotonic() - self._opened_at

    @property
    def amended(self) -> tuple[str, ...]:
        """Differences that were accepted so far."""
        return self._past.amended

    @property
    def contract(self) -> Mapping[str, Mapping[str, Any]]:
        """What checkpoints of this opening bear."""
        return self._past.contract

    def wait(self) -> None:
        """Waits for the commit in flight.

        Raises:
            CommitError: it failed.
        """
        self._writer.wait()

    def settle(self) -> BaseException | None:
        """Waits for the commit in flight; an error of it is returned, and raised where the training loop expects it."""
        return self._writer.settle()

    def exclusively(self) -> AbstractContextManager[object]:
        """While this lasts, no other thread commits."""
        return self._lock

    def close(self) -> None:
        """Ends the writer's thread, after the commit in flight."""
        self._writer.close()

    def raise_error(self) -> None:
        """Raises what a commit in the background failed with, once; does not wait."""
        self._writer.raise_error()

    def refuse_lost(self, snapshot: Snapshot) -> None:
        """Refuses a snapshot that lacks what the one before held.

        Raises:
            CaptureError: an optimizer's state is gone.
        """
        refuse_emptied(snapshot, self._last.optimizers)

    def commit(self, take: Callable[[], Snapshot], metrics: Mapping[str, Any] | None, *, at_once: bool = False) -> None:
        """Commits the state that `take` captures now.

        In the background mode this returns as soon as nothing can change the snapshot any more: what is on disk later
        is the state at this call.

        Args:
            take: captures the snapshot; called after the commit in flight is done, so that one at most is in memory.
            metrics: the boundary's metrics.
            at_once: commit before returning.

        Raises:
            CaptureError: an object cannot be captured.
            CommitError: this commit, or the one in flight, failed.
        """
        started = time.perf_counter()
        with self._lock:
            self._writer.wait()
            self._check_lock()
            snapshot = take()
            self._last.optimizers = optimizers_with_state(snapshot)
            if not self._terms.background or at_once or _has_rows(snapshot):
                about = self._about(metrics)
                self._save(snapshot, about, lambda: time.perf_counter() - started)
                return
            pending = self.pending(snapshot, metrics)
            blocked_s = time.perf_counter() - started
            about = replace(pending.about, parent=self._last.digest)
            self._writer.submit(lambda: self._save(pending.snapshot, about, lambda: blocked_s))

    def pending(self, snapshot: Snapshot, metrics: Mapping[str, Any] | None) -> Pending:
        """The snapshot of the boundary that was just noted, kept from change, and what its manifest is to say."""
        return Pending(_owned(snapshot), self._about(metrics))

    def commit_pending(self, pending: Pending) -> None:
        """Commits before it returns, after the commit in flight, however that ends; from any thread.

        Raises:
            CommitError: it failed.
            LockedError: the writer lock was lost to another process.
        """
        started = time.perf_counter()
        with self._lock:
            self._writer.settle()
            self._check_lock()
            self._last.optimizers = optimizers_with_state(pending.snapshot)
            about = replace(pending.about, parent=self._last.digest)
            self._save(pending.snapshot, about, lambda: time.perf_counter() - started)

    def _about(self, metrics: Mapping[str, Any] | None) -> About:
        return About(
            run_id=self._run_id,
            parent=self._last.digest,
            contract=self._past.contract,
            arithmetic=arithmetic(),
            metrics=self._journal.metrics.mark(),
            scores=scores_of(metrics or {}),
            amended=self._past.amended,
            trained_s=round(self.trained_s, 3),
        )

    def _save(self, snapshot: Snapshot, about: About, blocked: Callable[[], float]) -> None:
        started = time.perf_counter()
        name = step_name(snapshot.env_steps)
        self._sync_metrics(name)
        saved = self._saved(name, snapshot, about)
        save_s = time.perf_counter() - started
        self._last.saved, self._last.digest = saved, saved.digest
        self._last.number += 1
        self._last.scores[name] = about.scores
        sizes = {"size_bytes": saved.size_bytes, "written_bytes": saved.written_bytes}
        try:
            self._journal.lineage.append("committed", durable=False, checkpoint=name, digest=saved.digest)
            self._journal.add_timing(name, blocked_s=round(blocked(), 6), save_s=round(save_s, 6), **sizes)
        except OSError as error:  # the checkpoint itself is the truth
            self._report(name, "journal", error)
        counters = Counters(snapshot.env_steps, snapshot.updates, snapshot.boundary)
        self._journal.tell_commit(counters, self._directory.checkpoints / name, saved.size_bytes)
        self._after(name)

    def _saved(self, name: str, snapshot: Snapshot, about: About) -> Saved:
        try:
            return save(self._directory.store(), name, snapshot, about, self._shareable())
        except CommitError as error:
            self._report(name, "commit", error)
            raise

    def _sync_metrics(self, name: str) -> None:
        try:
            self._journal.sync()
        except OSError as error:
            message = f"checkpoint {name} was not committed: its metric rows: {error}. Earlier ones are untouched."
            raise CommitError(message) from error

    def _shareable(self) -> Saved | None:
        """The checkpoint whose files the next may share: not every so-manieth, where the policy wants full ones."""
        full_every = self._terms.keep.full_every if self._terms.keep else None
        return None if full_every and self._last.number % full_every == 0 else self._last.saved

    def _after(self, name: str) -> None:
        """What follows a commit and cannot undo it."""
        try:
            self._prune()
        except (OSError, DamagedError) as error:  # the next commit prunes again; damaged: pins.json
            self._report(name, "retention", error)
        if self._terms.after_commit is None:
            return
        try:
            self._terms.after_commit(self._directory.checkpoints / name)
        except Exception as error:  # noqa: BLE001 - the user's hook may raise anything; training goes on
            self._report(name, "after_commit", error)

    def _prune(self) -> None:
        if self._terms.keep is None:
            return
        removed = prune(self._directory, self._terms.keep, self._last.scores).removed
        if removed:
            self._journal.lineage.append("removed", durable=False, checkpoints=list(removed))

    def _report(self, name: str, what: str, error: Exception) -> None:
        """Says what failed around the commit of `name`, in the log and, if the disk takes it, in the lineage."""
        problem = redacted(f"{type(error).__name__}: {error}")  # hooks that upload know passwords
        _log.warning("%s: %s failed for %s: %s", self._directory.path, what, name, problem)
        with suppress(OSError):
            self._journal.lineage.append(f"{what}_failed", checkpoint=name, problem=problem)


def scores_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among a boundary's metrics."""
    scores = {}
    for name, value in metrics.items():
        number = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
        if type(number) in (int, float) and abs(number) <= sys.float_info.max:
            scores[name] = number
    return scores


def _has_rows(snapshot: Snapshot) -> bool:
    """Rows may be many gigabytes: they are written before the call returns rather than copied."""
    trees = {name: part.tree for name, part in snapshot.components.items()}
    return any(isinstance(leaf, Rows) for _, leaf in large_leaves(trees, ()))


def _owned(snapshot: Snapshot) -> Snapshot:
    components = {name: replace(part, tree=owned(part.tree)) for name, part in snapshot.components.items()}
    return Snapshot(components, snapshot.env_steps, snapshot.updates, snapshot.boundary)
