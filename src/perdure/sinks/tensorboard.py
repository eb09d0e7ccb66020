"""TensorBoard's event files: each step once, however often the run was killed."""

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.sinks.sink import Sink, SinkInfo
from perdure.store.small_files import replace_durably

if TYPE_CHECKING:
    from perdure.sinks.tensorboard_files import EventFile

CURSOR = "perdure.json"
"""Beside the event files: up to which step they surely hold the rows."""


class TensorBoard(Sink):
    """Writes rows as scalars, with env_steps as their step, and lends its writer to the script.

    When a run goes on from a checkpoint, a new event file begins with TensorBoard's own mark for that
    (`SessionLog.START`): every event of a later step in the files before it is no longer shown, whoever wrote it. Rows
    that the checkpoint counts but the files lack are written again from `metrics.jsonl`. Before each commit everything
    is flushed and synced, so that a kill after it loses nothing of it.

    Numbers are float32 in event files. Text, None and lists are left out; booleans are 0 and 1.
    """

    def __init__(
        self, directory: str | os.PathLike[str] = "tensorboard", *, rows: bool = True, flush_every_s: float = 10.0
    ) -> None:
        """Prepares the sink.

        Args:
            directory: of the event files; relative to the run's directory.
            rows: whether the metric rows go there; False: only what the script writes.
            flush_every_s: seconds after which what was written becomes visible, without a checkpoint too.

        Raises:
            UsageError: tensorboard is not installed.
        """
        if find_spec("tensorboard") is None:
            raise UsageError(
                "TensorBoard needs tensorboard, which is not installed: pip install 'perdure[tensorboard]'"
            )
        self._given = directory
        self._takes_rows = rows
        self._flush_every_s = flush_every_s
        self._directory = Path(directory)
        self._events: EventFile | None = None
        self._writer: Any = None
        self._last = -1

    @property
    def writer(self) -> Any:
        """Takes the script's own values (`add_scalar(tag, value, env_steps)`), for what is no metric of the run.

        A `torch.utils.tensorboard.SummaryWriter` if PyTorch is loaded, else a
        `perdure.sinks.tensorboard_writer.SummaryWriter`.

        Raises:
            UsageError: the run is not open, or the sink could not begin.
        """
        if self._events is None:
            raise UsageError(
                "TensorBoard.writer: the sink is not open; call Run.restore first, and nothing after close."
            )
        if self._writer is None:
            from perdure.sinks.tensorboard_writer import writer_on

            self._writer = writer_on(self._events)
        return self._writer

    def begin(self, info: SinkInfo) -> None:
        """Begins an event file that takes back the steps after the checkpoint; adds rows that are missing before."""
        from perdure.sinks.tensorboard_files import EventFile

        self.close()
        self._directory = info.directory / self._given
        self._directory.mkdir(parents=True, exist_ok=True)
        events = EventFile(self._directory, info.attempt, self._flush_every_s, self.purge_from(info))
        self._events = events
        events.flush()
        if self._takes_rows:
            self._fill(info, events)
        self._last = info.counters.env_steps
        self.flush()

    def purge_from(self, info: SinkInfo) -> int | None:
        """The first step that older event files may show no more; None: they show all they have."""
        return info.counters.env_steps + 1 if info.resumed else 0

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """Adds the row's numbers."""
        if self._takes_rows and self._events is not None:
            self._events.add_scalars(metrics, counters.env_steps)
            self._last = counters.env_steps

    def flush(self) -> None:
        """Makes everything so far durable, and notes how far that is."""
        if self._events is None:
            return
        last = self._last
        if self._events.flush() and self._takes_rows:
            replace_durably(self._directory / CURSOR, json.dumps({"env_steps": last}).encode())

    def close(self) -> None:
        """Flushes and closes the file."""
        if self._events is not None:
            self._events.close()
        self._events = self._writer = None

    def _fill(self, info: SinkInfo, events: "EventFile") -> None:
        """Writes rows up to the checkpoint that the files lack: lost with a machine, or older than the sink."""
        cursor = self._cursor()
        if cursor >= info.counters.env_steps:
            return
        from perdure.sinks.tensorboard_files import shown_scalars

        shown = shown_scalars(self._directory)
        for counters, metrics in info.rows():
            step = counters.env_steps
            if step > cursor:
                events.add_scalars({tag: x for tag, x in metrics.items() if (tag, step) not in shown}, step)

    def _cursor(self) -> int:
        try:
            return int(json.loads((self._directory / CURSOR).read_bytes())["env_steps"])
        except (OSError, ValueError, KeyError, TypeError):  # whoever cleaned up gets every row again that is missing
            return -1
