"""What an open run writes beside its checkpoints: lineage, metrics, timings."""

import json
from datetime import UTC, datetime

from perdure.runs.directory import RunDirectory
from perdure.runs.lineage import Lineage
from perdure.runs.metrics import MetricStream


class Journal:
    """The three streams of a run, open for appending. The caller holds the writer lock."""

    def __init__(self, directory: RunDirectory) -> None:
        self.lineage = Lineage(directory.lineage)
        """Events."""
        self.metrics = MetricStream(directory.metrics)
        """Deterministic values."""
        self._timings = directory.timings.open("a", encoding="utf-8", buffering=1)

    def add_timing(self, checkpoint: str, **figures: float) -> None:
        """Notes what a commit cost: figures with their units in their names."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._timings.write(json.dumps({"at": at, "checkpoint": checkpoint, **figures}) + "\n")

    def close(self) -> None:
        """Closes the streams."""
        self.metrics.close()
        self._timings.close()
