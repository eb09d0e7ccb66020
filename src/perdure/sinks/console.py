"""A line about the training now and then: steps, rate, time left, last checkpoint, chosen metrics."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from perdure.checkpoint.capture import Counters
from perdure.sinks.sink import Sink, SinkInfo
from perdure.sinks.wording import duration, size


@dataclass(frozen=True)
class Checkpoint:
    """The last checkpoint as the line tells it."""

    env_steps: int
    """Where it stands."""
    age_s: float | None = None
    """Seconds since it was committed; None: it is from before this opening."""
    size_bytes: int | None = None
    """Its size; None: nobody looked."""

    def __str__(self) -> str:
        """In words."""
        parts = [] if self.age_s is None else [f"{duration(self.age_s)} ago"]
        parts += [] if self.size_bytes is None else [size(self.size_bytes)]
        return f"last checkpoint {self.env_steps:,}" + (f" ({', '.join(parts)})" if parts else "")


def progress_line(
    env_steps: int,
    total: int | None,
    *,
    rate: float | None,
    metrics: Sequence[str] = (),
    checkpoint: Checkpoint | None = None,
) -> str:
    """The line.

    Args:
        env_steps: taken so far.
        total: the horizon, if it is known.
        rate: env-steps a second; None: not known yet.
        metrics: what else, in words.
        checkpoint: the last one.
    """
    share = f" of {total:,} steps ({100 * env_steps // total} %)" if total else " steps"
    pace = ["– steps/s"] if rate is None else [f"{rate:,.0f} steps/s"]
    if total and rate is not None:
        pace.append(f"{duration(max(total - env_steps, 0) / max(rate, 1e-9))} left")
    last = "no checkpoint yet" if checkpoint is None else str(checkpoint)
    return ", ".join([f"{env_steps:,}{share}", *metrics, *pace, last])


class Console(Sink):
    """Prints a line at a boundary when enough seconds have passed since the line before.

    Rate and time left go by what this opening did: steps from before a resume do not count. A stream that went away
    is no reason to stop training: the sink is then left out.
    """

    def __init__(
        self,
        metrics: Sequence[str] = (),
        *,
        every_s: float = 10.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the sink.

        Args:
            metrics: names of metrics to show, with the last value that each had.
            every_s: seconds between lines, at least.
            stream: where to; None: stderr as it is when the line is printed.
            clock: seconds that never go back.
        """
        self._names = tuple(metrics)
        self._every_s = every_s
        self._stream = stream
        self._clock = clock

    def begin(self, info: SinkInfo) -> None:
        """Sets the clock of the rate and of the first line."""
        self._total, self._begun_at, self._start = info.horizon, self._clock(), info.counters.env_steps
        self._shown_at = self._begun_at
        self._seen: dict[str, Any] = {}
        self._last: Checkpoint | None = Checkpoint(self._start) if info.resumed else None
        self._committed_at = self._begun_at

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """Takes note of the metrics, and prints the line if it is time."""
        self._seen |= {name: metrics[name] for name in self._names if name in metrics}
        now = self._clock()
        if now - self._shown_at >= self._every_s:
            self._shown_at = now
            print(self.line(counters.env_steps, now), file=self._stream or sys.stderr, flush=True)

    def committed(self, counters: Counters, checkpoint: Path, size_bytes: int) -> None:
        """Takes note of the checkpoint."""
        self._committed_at, self._last = self._clock(), Checkpoint(counters.env_steps, 0.0, size_bytes)

    def line(self, env_steps: int, now: float) -> str:
        """The line at `now` seconds of the clock."""
        spent_s, last = now - self._begun_at, self._last
        if last is not None and last.age_s is not None:
            last = Checkpoint(last.env_steps, now - self._committed_at, last.size_bytes)
        rate = (env_steps - self._start) / spent_s if spent_s > 0 else None
        return progress_line(env_steps, self._total, rate=rate, metrics=self._words(), checkpoint=last)

    def _words(self) -> list[str]:
        return [f"{name} {_word(self._seen[name])}" for name in self._names if name in self._seen]


def _word(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
