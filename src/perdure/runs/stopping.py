"""Stopping: what an open run does when a signal, a time limit or an error ends it.

The last boundary becomes durable first: at once where it is being saved or is held in memory, else when the loop comes
to its next boundary. Only then does the training end, by `Preempted`. Two threads may see to that: the main thread, and
one beside it in case the main thread is deep in a compiled call; whoever is later finds nothing left to do.
"""

import logging
import signal
import threading
import time
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from perdure.errors import Preempted
from perdure.runs import signals
from perdure.runs.boundaries import Boundaries
from perdure.runs.journal import Journal

PATIENCE_S = 2.0
"""How long a signal waits for the next boundary before an older one that is held in memory is made durable."""

_POLL_S = 0.005

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class Asked:
    """That the run was told to stop."""

    why: str
    """By what, as a person reads it."""
    at: float
    """When, in monotonic seconds."""
    number: int | None = None
    """The signal's number."""


class Stoppable(Protocol):
    """The run, as far as it takes part in its end."""

    @property
    def directory(self) -> str:
        """Its directory."""
        ...

    def end(self, error: BaseException) -> None:
        """Waits for the commit in flight, notes the end and its cause, and frees the lock."""
        ...


class Stopper:
    """Listens to signals on behalf of one run (`signals.Listener`)."""

    def __init__(self, run: Stoppable, stop_after_s: float | None) -> None:
        """Begins to listen; what is asked for before `begin` is done then.

        Args:
            run: what to end.
            stop_after_s: seconds from now after which the run is told to stop; None: never.
        """
        self._run = weakref.ref(run)  # a Run that its user drops must not stay open for ever
        self._directory = run.directory
        self._owner = threading.get_ident()
        self._inside = 0
        self._open: tuple[Boundaries, Journal] | None = None
        self._asked: Asked | None = None
        self._told = threading.Lock()
        self._wants_checkpoint = self._closed = False
        self.preempted: Preempted | None = None
        """What ended the run, if a signal or the time limit did."""
        self._watch = signals.listen(self)
        self._timer: threading.Timer | None = None
        if stop_after_s is not None:
            self._timer = threading.Timer(max(stop_after_s, 0.0), self._time_is_up)
            self._timer.daemon = True
            self._timer.start()

    def begin(self, boundaries: Boundaries, journal: Journal) -> None:
        """From now on there is something to save."""
        self._open = boundaries, journal

    def close(self) -> None:
        """Ends the listening. A second call does nothing."""
        self._open, self._closed = None, True
        if self._timer is not None:
            self._timer.cancel()
        signals.unlisten(self)

    @property
    def should_stop(self) -> bool:
        """Whether the run was told to stop."""
        return self._asked is not None

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the next boundary is to be saved, whatever the cadence says."""
        return self._wants_checkpoint or self._asked is not None

    def has_checkpoint(self) -> None:
        """Notes that a boundary is being saved, which is all that a signal to go on wants."""
        self._wants_checkpoint = False

    def __enter__(self) -> Self:
        """Goes into one of the run's own methods, which are not left half-way."""
        self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves it, and ends the training if that was asked for meanwhile."""
        self._inside -= 1
        if self._asked is not None and kind is None and not self._inside:
            self._leave_if_covered()

    def heard(self, number: int) -> None:
        """A signal has arrived; the main thread may not know it for long."""
        if number == signals.SAVE:
            self._wants_checkpoint = True
            threading.Thread(target=self._save_held, name="perdure-save", daemon=True).start()
        else:
            self._ask(signal.Signals(number).name, number)
            threading.Thread(target=self._make_durable, name="perdure-stop", daemon=True).start()

    def act(self, number: int) -> None:
        """The same in the main thread, which drops whatever it does if the last boundary can be made durable now.

        Raises:
            Preempted: it can, and is.
            CommitError: it cannot: the disk failed.
        """
        if number == signals.SAVE:
            return
        self._ask(signal.Signals(number).name, number)
        if not self._inside and threading.get_ident() == self._owner:
            self._leave_if_covered()

    def failed(self, error: BaseException) -> None:
        """The training ends by an exception that nobody caught."""
        if (run := self._run()) is not None:
            run.end(error)

    def ask(self, why: str) -> None:
        """Tells the run to stop at the boundary at hand, which its own method is about to save."""
        self._ask(why, None)

    def _ask(self, why: str, number: int | None) -> None:
        if self._asked is None:
            self._asked = Asked(why, time.monotonic(), number)

    def _time_is_up(self) -> None:
        self._ask("its time limit", None)
        if self._watch is not None and self._watch.handles(signal.SIGUSR1):
            signal.pthread_kill(self._owner, signal.SIGUSR1)  # so that the main thread looks
        self._make_durable()

    def _save_held(self) -> None:
        if self._open is not None and self._open[0].is_covered:
            self._wants_checkpoint = False  # before it is there, or a boundary that comes meanwhile is saved, too
            if not self._try_to_commit(self._open[0]):
                self._wants_checkpoint = True

    def _make_durable(self) -> None:
        """Beside the main thread: saves what is in memory, as soon as that is the last boundary, or time is short."""
        started, was_late = time.monotonic(), False
        while not self._closed:
            if self._open is not None:
                boundaries, _ = self._open
                is_late = not was_late and time.monotonic() - started > PATIENCE_S
                if boundaries.is_covered or is_late:
                    was_late |= is_late
                    if not self._try_to_commit(boundaries) or boundaries.is_covered:
                        return
            time.sleep(_POLL_S)

    def _try_to_commit(self, boundaries: Boundaries) -> bool:
        try:
            self._tell(boundaries.commit_held())
        except Exception as error:  # noqa: BLE001 - of a thread: the main thread meets it too, at its next boundary
            if not self._closed:  # else there is nothing to save any more
                _log.error("%s: the last boundary could not be saved: %s", self._directory, error)
            return False
        return True

    def _leave_if_covered(self) -> None:
        if self._open is not None and self._open[0].is_covered:
            self.leave()

    def leave(self) -> None:
        """Ends the training with what can be made durable, if it was told to stop and the run is still open.

        Raises:
            Preempted: it was.
            CommitError: the disk failed.
        """
        if self._open is None or self._asked is None:
            return
        checkpoint = self._open[0].commit_held()
        self._tell(checkpoint)
        asked, self.preempted = self._asked, Preempted(self._asked.why, self._directory, checkpoint)
        self.failed(self.preempted)
        _log.warning("%s", self.preempted)
        if asked.number is not None and self._watch is not None:
            self._watch.call_previous(asked.number)
        raise self.preempted

    def _tell(self, checkpoint: str) -> None:
        """Notes, once, how long it took from the signal to a durable checkpoint."""
        if self._asked is None or self._open is None or not self._told.acquire(blocking=False):
            return
        journal, after_s = self._open[1], round(time.monotonic() - self._asked.at, 6)
        try:
            journal.lineage.append("signalled", signal=self._asked.why, checkpoint=checkpoint, after_s=after_s)
            journal.add_timing(checkpoint, signal_to_durable_s=after_s)
        except OSError as error:  # a line of history is no reason to fail at the very end
            _log.warning("%s: the lineage could not be written: %s", self._directory, error)
