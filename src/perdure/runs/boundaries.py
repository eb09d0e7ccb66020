"""The boundaries of an open run: each is noted, saved if it is due, and otherwise held while that costs little."""

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.errors import CommitError
from perdure.runs.boundary_reset import Resets
from perdure.runs.cadence import Every
from perdure.runs.committer import Committer, Pending
from perdure.runs.directory import step_name
from perdure.runs.holding import Budget
from perdure.runs.opening import OpenRun
from perdure.runs.unchanged import refuse_changes
from perdure.tree.snapshot import Snapshot

Objects = Mapping[str, Any]

_log = logging.getLogger("perdure")


class Boundaries:
    """Where an open run stands, and what of it is durable."""

    def __init__(self, opened: OpenRun, resolver: Resolver, every: Every, horizon: int | None, resets: Resets) -> None:
        """Begins where the run was opened, which is saved."""
        self._opened = opened
        self._resolver = resolver
        self._every = every
        self._horizon = horizon
        self._resets = resets
        self.counters = opened.counters
        """The last boundary that was noted."""
        self._saved: Counters | None = opened.counters
        self._saved_at = time.monotonic()
        self._held: Pending | None = None
        self._chain = opened.chain
        # A boundary that is no checkpoint is no place to go on from, where every checkpoint resets the environments.
        self._budget = Budget(is_spent=resets.decide)

    @property
    def is_saved(self) -> bool:
        """Whether the last boundary is committed, or being committed."""
        return self._saved == self.counters

    @property
    def is_covered(self) -> bool:
        """Whether all that can be gone on from is saved, or held so that it can be."""
        return self.is_saved or self._resets.decide or (self._held is not None and self._held.counters == self.counters)

    def is_due(self, now: Counters) -> bool:
        """Whether the boundary `now` is to be saved."""
        at_horizon = self._horizon is not None and now.env_steps >= self._horizon
        return at_horizon or self._every.is_due(self.counters, now, time.monotonic() - self._saved_at)

    def pass_by(self, live: Objects, values: Objects, now: Counters, metrics: Mapping[str, Any] | None) -> None:
        """Takes a boundary that is not due for a checkpoint: notes it, links it, holds it.

        Raises:
            CaptureError: it is to have a link in the digest chain, and cannot be captured; it is not noted.
        """
        if self._chain is None or not self._chain.is_due(now.boundary):
            self.note(now, metrics)
            self._hold(live, values, metrics)
            return
        self._resets.on_cadence = False
        snapshot = self._captured({**live, **values}, now)
        self.note(now, metrics)
        self._link(snapshot)
        started = time.monotonic()  # what was captured for the link costs the holding nothing
        if self._budget.allows(started) and not self._budget.rules_out(snapshot):
            self._keep(snapshot, metrics, started)

    def note(self, now: Counters, metrics: Mapping[str, Any] | None) -> None:
        """Takes the boundary: its row and its counters."""
        if metrics is not None:
            self._opened.journal.add_row(now, metrics)
        self.counters = now

    def commit(
        self, objects: Objects, now: Counters, metrics: Mapping[str, Any] | None, *, at_once: bool = False
    ) -> None:
        """Notes and saves the boundary `now`.

        Raises:
            CaptureError: an object cannot be captured; the boundary is not noted.
            CommitError: see `Committer.commit`.
        """

        def take() -> Snapshot:
            snapshot, is_new = self._captured(objects, now), now != self.counters
            self.note(now, metrics)  # not before the state is in hand
            # `finish` saves a boundary that was passed by, and so has its link.
            if is_new and self._chain is not None and self._chain.is_due(now.boundary):
                self._link(snapshot)
            return snapshot

        self._resets.on_cadence = self._every.is_due(self.counters, now, 0.0)
        with self._opened.committer.exclusively():
            before = self._saved, self._saved_at
            self._saved, self._saved_at = now, time.monotonic()
            try:
                self._opened.committer.commit(take, metrics, at_once=at_once)
            except BaseException:
                self._saved, self._saved_at = before
                raise
            self._held = None

    def _hold(self, live: Objects, values: Objects, metrics: Mapping[str, Any] | None) -> None:
        """Keeps the boundary that was just noted in memory, if that is cheap enough. Never raises."""
        started = time.monotonic()
        if not self._budget.allows(started):
            return
        try:
            snapshot = self._captured({**live, **values}, self.counters)
        except Exception as error:  # noqa: BLE001 - the boundary is not due: who cannot be held now may be saved later
            _log.info("boundary %d is not held in memory: %s", self.counters.boundary, error)
            self._budget.spend(started, time.monotonic())  # it may be possible later, at the same cost
            return
        if not self._budget.rules_out(snapshot):
            self._keep(snapshot, metrics, started)

    def _captured(self, objects: Objects, now: Counters) -> Snapshot:
        snapshot = capture(objects, self._resolver, now).snapshot
        self._opened.committer.refuse_lost(snapshot)
        refuse_changes(self._opened.fixed, snapshot)
        return snapshot

    def _keep(self, snapshot: Snapshot, metrics: Mapping[str, Any] | None, started: float) -> None:
        self._held = self._opened.committer.pending(snapshot, metrics)
        self._budget.spend(started, time.monotonic())

    def _link(self, snapshot: Snapshot) -> None:
        assert self._chain is not None  # noqa: S101 - callers have looked
        self._chain.append(snapshot, self._opened.journal.metrics.mark()["digest"])

    def commit_held(self) -> str:
        """Makes the newest state durable that can be: what is being written, then what is held, if it is newer.

        Any thread may call this.

        Returns:
            The newest checkpoint's name.

        Raises:
            CommitError: it failed.
        """
        with self._opened.committer.exclusively():
            return self._commit_held(self._opened.committer)

    def _commit_held(self, committer: Committer) -> str:
        held, saved, error = self._held, self._saved, committer.settle()
        if held is not None and (saved is None or error is not None or saved.env_steps < held.counters.env_steps):
            committer.commit_pending(held)
            saved = held.counters
            if self._held is held:
                self._saved, self._saved_at, self._held = saved, time.monotonic(), None
        elif error is not None:
            self._saved, self._saved_at = None, -math.inf
            raise CommitError(str(error)) from error
        return step_name((saved or self.counters).env_steps)

    def raise_error(self, *, wait: bool = False) -> None:
        """Raises what a commit in the background failed with; the next boundary of the cadence tries anew."""
        try:
            self._opened.committer.wait() if wait else self._opened.committer.raise_error()
        except BaseException:
            self._saved, self._saved_at = None, -math.inf
            raise
