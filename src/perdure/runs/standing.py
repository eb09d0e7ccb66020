"""Where a run stands: what a script may ask of it at any time."""

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.contract.horizon import PROGRESS
from perdure.errors import UsageError
from perdure.runs.arguments import count
from perdure.runs.boundaries import Boundaries
from perdure.runs.boundary_reset import Resets
from perdure.runs.choosing import Which, choose, rankings_of
from perdure.runs.committer import Terms
from perdure.runs.contract_terms import ContractTerms
from perdure.runs.directory import RunDirectory
from perdure.runs.metrics import read_metrics
from perdure.runs.opening import OpenRun
from perdure.runs.retention import Order


class Standing:
    """The questions that `Run` answers; `Run` sets the attributes."""

    _directory: RunDirectory
    _boundaries: Boundaries | None
    _horizon: int | None
    _contract_terms: ContractTerms
    _told: tuple[float, tuple[str, ...]] | None
    _terms: Terms
    _resets: Resets
    _open: OpenRun | None
    _pid: int | None

    @property
    def _counters(self) -> Counters:
        return Counters() if self._boundaries is None else self._boundaries.counters

    @property
    def directory(self) -> str:
        """The run's directory, absolute."""
        return str(self._directory.path)

    @property
    def env_steps(self) -> int:
        """Environment steps at the last boundary."""
        return self._counters.env_steps

    @property
    def updates(self) -> int:
        """Policy updates at the last boundary."""
        return self._counters.updates

    @property
    def boundary_number(self) -> int:
        """Number of the last boundary; 0 after a fresh `restore`."""
        return self._counters.boundary

    @property
    def horizon(self) -> int | None:
        """Total of environment steps, if it is known."""
        return self._horizon

    @property
    def resets_environments(self) -> bool:
        """Whether the run resets environments at its checkpoints (`boundary_reset`)."""
        return self._resets.decide

    @property
    def is_finished(self) -> bool:
        """Whether the last boundary stands at or past the horizon."""
        return self._horizon is not None and self._counters.env_steps >= self._horizon

    @property
    def trained_s(self) -> float:
        """Seconds of training so far, those before earlier resumes included, the pauses between them not."""
        return self._told[0] if self._told else self._opened("trained_s").committer.trained_s

    @property
    def amended(self) -> tuple[str, ...]:
        """Every difference from the run's first contract that was accepted: `KEY=OLD:NEW` each."""
        return self._told[1] if self._told else self._opened("amended").committer.amended

    @property
    def has_progress(self) -> bool:
        """Whether `progress` tells how far schedules are.

        It does if there is a horizon, and somebody said, now or at an earlier resume, what becomes of schedules if it
        changes.
        """
        opened = self._opened("has_progress")
        is_counted = PROGRESS in opened.committer.contract.get("horizon", {})
        return opened.progress is not None and (self._contract_terms.schedules in ("keep", "restretch") or is_counted)

    def progress(self, env_steps: int | None = None) -> float:
        """How far schedules are, from 0 at the start to 1 at the end: `learning_rate = 3e-4 * (1 - run.progress())`.

        It is env_steps / total, unless the total changed at a resume: then `schedules="keep"` leaves it at env_steps /
        old total, and `"restretch"` goes in a straight line from where it stood to 1 at the new total.

        Args:
            env_steps: where; default: the last boundary.

        Raises:
            UsageError: the run has no horizon, or nobody said what schedules do when it changes.
        """
        progress = self._opened("progress").progress
        if progress is None or not self.has_progress:
            message = 'progress: give the Run a horizon and schedules="keep" or "restretch" (docs/contract.md).'
            raise UsageError(message)
        return progress.at(self.env_steps if env_steps is None else count("progress", "env_steps", env_steps))

    def metrics_rows(self) -> list[dict[str, Any]]:
        """The metric rows so far, one a boundary, with `boundary`, `env_steps` and `updates`."""
        return read_metrics(self._directory.metrics)

    def checkpoint_path(self, which: Which = "latest", *, metric: str | None = None, mode: Order | None = None) -> Path:
        """The directory of one of the run's checkpoints; a commit in flight is waited for.

        The best is that of all checkpoints there are, those from before earlier resumes included: scores stand in the
        checkpoints. `Keep(best=…)` makes it stay.

        Args:
            which: `best`, `latest`, or env-steps.
            metric: of `best`: a name among the boundaries' metrics; default: what `Keep(best=…, metric=…)` names.
            mode: of `best`: whether a greater (`max`) or a smaller (`min`) metric is better; default: as `Keep` says.

        Raises:
            NoCheckpointError: the run has no checkpoint, or none at this step.
            AllDamagedError: no manifest is intact.
            UsageError: nobody says by which metric, or no checkpoint has it; the message lists those that there are.
        """
        if self._open is not None and self._pid == os.getpid():
            self._open.committer.settle()
        rankings = rankings_of(self._terms.keep)
        name = choose(self._directory, which, metric=metric, mode=mode, rankings=rankings)
        return self._directory.checkpoints / name

    @abstractmethod
    def _opened(self, verb: str) -> OpenRun:
        """The open run.

        Raises:
            UsageError: it is not open.
        """
