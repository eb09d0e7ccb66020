"""Event files: written in an order that readers follow, and read as TensorBoard shows them."""

import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from perdure.sinks.tensorboard_protos import Event, SessionLog, Summary

PREFIX = "events.out.tfevents."
_PATIENCE_S = 1.0


class EventFile:
    """One event file, of one opening of a run.

    Why not tensorboard's own `EventFileWriter`: readers take the files of a directory in the order of their names,
    which begin with the second in which each was made. After a kill within that second, or under a clock that went
    back, the mark that takes steps back would be read before them. Here a name follows all names that are there. And
    what is flushed is synced, and nothing is lost or doubled in a forked child.
    """

    def __init__(self, directory: Path, attempt: int, flush_every_s: float, purge_from: int | None = None) -> None:
        """Creates the file.

        Args:
            directory: where; its other event files are older.
            attempt: how many times the run was opened.
            flush_every_s: seconds after which written events go to the file.
            purge_from: the first step that the older files may show no more; None: all stay.
        """
        self.directory = directory
        older = sorted(path.name for path in directory.glob(f"{PREFIX}*"))
        name = f"{PREFIX}{_number_after(older):010d}.{socket.gethostname()}.{os.getpid()}.{attempt}"
        self._file = (directory / name).open("xb", buffering=0)
        self._pid = os.getpid()
        self._flush_every_s = flush_every_s
        self._waiting: deque[bytes] = deque()
        self._lock = Lock()
        self._error: OSError | None = None
        self._drained_at = time.monotonic()
        self.add(Event(file_version="brain.Event:2"))
        if older and purge_from is not None:
            # Twice: TensorBoard takes the first mark that it sees of a directory for its beginning, not for a restart.
            for _ in range(2):
                self.add(Event(step=purge_from, session_log=SessionLog(status=SessionLog.START)))

    def add(self, event: Any) -> None:
        """Takes an event. An error of the disk is told by the next `flush`; a forked child's events are dropped."""
        if self._error is not None or os.getpid() != self._pid or self._file.closed:
            return
        if not event.wall_time:
            event.wall_time = time.time()
        frame = BytesIO()
        RecordWriter(frame).write(event.SerializeToString())
        self._waiting.append(frame.getvalue())
        if time.monotonic() - self._drained_at >= self._flush_every_s and self._lock.acquire(blocking=False):
            try:
                self._drain()
            except OSError as error:
                self._error = error
            finally:
                self._lock.release()

    def add_scalars(self, metrics: Mapping[str, Any], step: int) -> None:
        """Takes the numbers among some metrics, in one event."""
        numbers = {tag: float32(value) for tag, value in metrics.items() if isinstance(value, int | float)}
        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
        if values:
            self.add(Event(step=step, summary=Summary(value=values)))

    def flush(self) -> bool:
        """Makes all events so far durable.

        Returns:
            Whether they are: not if another thread is at it for long. A signal may have stopped that thread, to wait
            for the commit that this flush belongs to.

        Raises:
            OSError: that did not work, now or at an earlier event.
        """
        if os.getpid() != self._pid or self._file.closed or not self._lock.acquire(timeout=_PATIENCE_S):
            return False
        try:
            if self._error is not None:
                raise self._error
            self._drain()
            os.fsync(self._file.fileno())
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        """Flushes and closes the file. A second call does nothing."""
        try:
            self.flush()
        finally:
            self._file.close()

    def _drain(self) -> None:
        self._drained_at = time.monotonic()
        frames = []
        while self._waiting:
            frames.append(self._waiting.popleft())
        rest = memoryview(b"".join(frames))
        while rest:
            rest = rest[self._file.write(rest) or 0 :]


def _number_after(older: list[str]) -> int:
    """The present second, or the next number after those of the older files."""
    numbers = [int(part) for name in older if (part := name.removeprefix(PREFIX).partition(".")[0]).isdecimal()]
    return max([int(time.time()), *(number + 1 for number in numbers)])


def float32(value: float) -> float:
    """A number as event files can hold it; too large ones are infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def shown_scalars(directory: Path) -> set[tuple[str, int]]:
    """Tag and step of every scalar that TensorBoard shows of a directory, by its own rules."""
    everything = {event_accumulator.SCALARS: 0}
    accumulator = event_accumulator.EventAccumulator(str(directory), size_guidance=everything)
    accumulator.Reload()
    return {(tag, event.step) for tag in accumulator.Tags()["scalars"] for event in accumulator.Scalars(tag)}
