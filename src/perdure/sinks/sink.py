"""What a sink is: where the metric rows of a run go besides `metrics.jsonl`, which stays the truth."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perdure.checkpoint.capture import Counters

Row = tuple[Counters, Mapping[str, Any]]
"""A boundary's counters and its metrics: numbers, text, booleans, None, and lists of them."""


@dataclass(frozen=True)
class SinkInfo:
    """What a sink is told when its run is opened."""

    run_id: str
    """The run's id, the same over all resumes."""
    directory: Path
    """The run's directory, absolute."""
    attempt: int
    """How many times the run was opened, this time included."""
    horizon: int | None
    """Total of environment steps, if it is known."""
    resumed: bool
    """Whether the run goes on from a checkpoint."""
    counters: Counters
    """Where it begins or goes on."""
    trained_s: float
    """Seconds of training before this opening."""
    rows: Callable[[], Iterator[Row]]
    """Reads the rows up to `counters` from `metrics.jsonl`, oldest first, one at a time."""


class Sink(Protocol):
    """Takes the rows of one run, as they come.

    Contract, in the order of the calls:

    - `begin` once. What the sink holds of rows after `info.counters` no longer counts: it takes it back, or tags it.
      What it lacks of the rows up to there, it takes from `info.rows`.
    - `row` for each boundary with metrics, after the row is in `metrics.jsonl`. A kill may undo the row.
    - `flush` before a checkpoint is committed: rows so far should survive a kill from here on.
    - `committed` after that checkpoint is durable: no kill undoes the rows up to its counters any more. Rows of
      later boundaries may have come meanwhile.
    - `close` once, at the run's end or at the end of the process as far as it gets there.

    Calls never overlap, but `flush` and `committed` come from the thread that writes checkpoints; either may be left
    out when the sink is still busy, and the next one counts for it. A call that raises is reported, in the log and in
    the lineage; the sink then gets no more calls but `close`, and what it lacks at the run's next opening. A call that
    does not return holds the training up.

    A class may inherit from this one: the methods then do nothing unless they are overridden.
    """

    def begin(self, info: SinkInfo) -> None:
        """The run was opened."""

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """A boundary's row."""

    def flush(self) -> None:
        """A checkpoint that counts all rows so far is about to be committed."""

    def committed(self, counters: Counters, checkpoint: Path, size_bytes: int) -> None:
        """A checkpoint is durable.

        Args:
            counters: of its boundary.
            checkpoint: its directory; retention may remove it at any later time.
            size_bytes: its size.
        """

    def close(self) -> None:
        """The run is closed. A second call does nothing."""
