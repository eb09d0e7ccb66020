"""The sinks of an open run, behind one guard: whatever one of them raises, training goes on."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.contract.redaction import redacted
from perdure.errors import UsageError
from perdure.runs.lineage import Lineage
from perdure.sinks import Sink, SinkInfo, TensorBoard

_PATIENCE_S = 1.0
"""How long a commit waits for a sink that is busy in the other thread."""

_log = logging.getLogger("perdure")


class Sinks:
    """Passes every call on to each sink, one call at a time; a sink that raised is left out from then on."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        """Takes the sinks.

        Raises:
            UsageError: one of them is a class, or lacks a method.
        """
        for sink in sinks:
            check_sink(sink)
        self._all = list(sinks)
        self._in_service = list(sinks)
        self._lock = Lock()
        self._untold: list[dict[str, Any]] = []
        self._info: SinkInfo | None = None
        self._is_closed = False

    def __bool__(self) -> bool:
        """Whether any sink still takes rows."""
        return bool(self._in_service)

    def begin(self, info: SinkInfo) -> None:
        """The run was opened."""
        self._info = info
        with self._lock:
            self._each("begin", lambda sink: sink.begin(info))

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """A row is in the metric stream."""
        with self._lock:
            self._each("row", lambda sink: sink.row(counters, metrics))

    def flush(self) -> None:
        """A checkpoint is about to be committed. Called by the thread that writes it."""
        self._each_if_free("flush", Sink.flush.__name__)

    def committed(self, counters: Counters, checkpoint: Path, size_bytes: int) -> None:
        """A checkpoint is durable. Called by the thread that wrote it."""
        self._each_if_free("committed", Sink.committed.__name__, counters, checkpoint, size_bytes)

    def close(self) -> None:
        """The run is closed; also the sinks that were left out. A second call does nothing."""
        if self._is_closed or self._info is None:
            return
        self._is_closed = True
        with self._lock:
            self._in_service = list(self._all)
            self._each("close", lambda sink: sink.close())
            self._in_service = []

    def summary_writer(self) -> Any:
        """The writer of the TensorBoard sink; without one among the sinks, that of one which takes no rows.

        Raises:
            UsageError: tensorboard is not installed, or the sink could not begin.
        """
        board = next((sink for sink in self._all if isinstance(sink, TensorBoard)), None)
        if board is None:
            board = TensorBoard(rows=False)
            self._add(board)
        return board.writer

    def _add(self, sink: Sink) -> None:
        if self._info is None:
            raise UsageError("summary_writer: the run is not open; call restore first.")
        with self._lock:
            self._all.append(sink)
            self._in_service.append(sink)
            info = self._info
            self._guarded(sink, "begin", lambda: sink.begin(info))

    def tell(self, lineage: Lineage) -> None:
        """Notes in the lineage what failed since it was last told; only one thread at a time may write there."""
        while self._untold:
            with suppress(OSError):
                lineage.append("sink_failed", durable=False, **self._untold[0])
            del self._untold[0]

    def _each_if_free(self, call: str, method: str, *arguments: Any) -> None:
        # A signal may have stopped the training thread in the middle of a row, to wait for this very commit.
        if not self._lock.acquire(timeout=_PATIENCE_S):
            _log.debug("sinks: busy for %s s; %s was left out", _PATIENCE_S, call)
            return
        try:
            self._each(call, lambda sink: getattr(sink, method)(*arguments))
        finally:
            self._lock.release()

    def _each(self, call: str, do: Callable[[Sink], None]) -> None:
        for sink in tuple(self._in_service):
            self._guarded(sink, call, lambda sink=sink: do(sink))

    def _guarded(self, sink: Sink, call: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; training goes on
            self._in_service = [other for other in self._in_service if other is not sink]
            self._report(sink, call, redacted(f"{type(error).__name__}: {error}"))

    def _report(self, sink: Sink, call: str, problem: str) -> None:
        name = type(sink).__name__
        directory = self._info.directory if self._info else ""
        _log.warning("%s: sink %s failed in %s; left out until the next start: %s", directory, name, call, problem)
        self._untold.append({"sink": name, "call": call, "problem": problem[:1000]})


def check_sink(sink: Any) -> None:
    """Refuses what cannot be called as a sink.

    Raises:
        UsageError: it is a class, or lacks a method.
    """
    if isinstance(sink, type):
        raise UsageError(f"sinks: {sink.__name__} is a class; write {sink.__name__}().")
    for method in ("begin", "row", "flush", "committed", "close"):
        if not callable(getattr(sink, method, None)):
            kind = type(sink).__name__
            raise UsageError(f"sinks: a {kind} has no method {method}; perdure.sinks.Sink says what a sink is.")


def attempt_of(lineage: Path) -> int:
    """How many times a run was opened, by its lineage; what cannot be read there does not count."""
    openings = 0
    for line in lineage.read_bytes().splitlines() if lineage.exists() else ():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        is_opening = isinstance(event, dict) and event.get("event") in ("started", "resumed")
        openings += is_opening and "forked_from" not in event
    return openings
