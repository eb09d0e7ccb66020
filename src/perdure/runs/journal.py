"""What an open run writes beside its checkpoints: lineage, metrics, timings."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.runs.directory import RunDirectory
from perdure.runs.lineage import Lineage
from perdure.runs.metrics import MetricStream, decode_row, rows_until
from perdure.runs.sinks import Sinks, attempt_of
from perdure.sinks import SinkInfo


class Journal:
    """The three streams of a run, open for appending, and its sinks. The caller holds the writer lock."""

    def __init__(self, directory: RunDirectory, sinks: Sinks | None = None) -> None:
        self._directory = directory
        self.sinks = sinks if sinks is not None else Sinks()
        """Where rows go besides."""
        self.lineage = Lineage(directory.lineage)
        """Events."""
        self.metrics = MetricStream(directory.metrics)
        """Deterministic values."""
        self._timings = directory.timings.open("a", encoding="utf-8", buffering=1)

    def add_timing(self, checkpoint: str, **figures: float) -> None:
        """Notes what a commit cost: figures with their units in their names."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._timings.write(json.dumps({"at": at, "checkpoint": checkpoint, **figures}) + "\n")

    def begin_sinks(
        self, run_id: str, counters: Counters, horizon: int | None, *, trained_s: float, resumed: bool
    ) -> None:
        """Tells the sinks where the run begins or goes on; the metric stream was cut back before, if it had to be."""
        path, end = self._directory.metrics, self.metrics.length
        self.sinks.begin(
            SinkInfo(
                run_id,
                self._directory.path,
                attempt_of(self._directory.lineage),
                horizon,
                resumed,
                counters,
                trained_s,
                rows=lambda: rows_until(path, end),
            )
        )

    def add_row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """Appends a boundary's row to the metric stream, then hands it to the sinks.

        Raises:
            UsageError: a name is reserved, or a value is no number, text, boolean, None, or list of them.
        """
        line = self.metrics.append(counters, metrics)
        if self.sinks:
            self.sinks.row(*decode_row(line))

    def sync(self) -> None:
        """Makes all rows so far durable, in the sinks too; must come before the commit that counts them."""
        self.metrics.sync()
        self.sinks.flush()

    def tell_commit(self, counters: Counters, checkpoint: Path, size_bytes: int) -> None:
        """Tells the sinks that a checkpoint is durable, and the lineage of sinks that failed."""
        self.sinks.committed(counters, checkpoint, size_bytes)
        self.sinks.tell(self.lineage)

    def close_sinks(self) -> None:
        """Closes the sinks, before the last line of the lineage is written. A second call does nothing."""
        self.sinks.close()
        self.sinks.tell(self.lineage)

    def close(self) -> None:
        """Closes the streams."""
        self.sinks.close()
        self.metrics.close()
        self._timings.close()
