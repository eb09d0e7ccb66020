"""The progress of a training, on stderr: one line that is rewritten on a terminal, a line now and then elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

from perdure.runs.directory import RunDirectory, newest_first, steps_of
from perdure.sinks.console import Checkpoint, progress_line

TERMINAL_INTERVAL_S = 0.2
OTHER_INTERVAL_S = 10.0
RATE_WINDOW_S = 5.0
RETURNS = ("eval/episode_reward_mean", "eval/return_mean", "rollout/return_mean")
"""Names under which trainers tell the mean return, the best one first."""
ERASE_LINE = "\r\x1b[K"


class Progress:
    """Called once an iteration, as `log_fn`. Never raises: a closed stderr is no reason to stop training."""

    def __init__(self, directory: RunDirectory, total_steps: int, stream: TextIO | None = None) -> None:
        """Prepares the line.

        Args:
            directory: the run; its newest checkpoint is looked up on disk.
            total_steps: the horizon.
            stream: where to write; stderr if None.
        """
        self._directory = directory
        self._total_steps = total_steps
        self._stream = stream or sys.stderr
        self._on_terminal = self._stream.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._on_terminal else OTHER_INTERVAL_S
        self._shown_at = time.monotonic() if not self._on_terminal else 0.0
        self._recent: deque[tuple[float, int]] = deque()
        self.last_return: float | None = None
        """Mean return of the last evaluation seen."""
        self.iterations = 0
        """Iterations seen."""

    def __call__(self, metrics: Mapping[str, Any], env_steps: int) -> None:
        """Takes note of an iteration, and shows the line if it is time."""
        self.iterations += 1
        now = time.monotonic()
        self.last_return = _return_in(metrics, self.last_return)
        self._recent.append((now, env_steps))
        while self._recent[0][0] < now - RATE_WINDOW_S and len(self._recent) > 2:
            self._recent.popleft()
        if now - self._shown_at >= self._interval_s:
            self._shown_at = now
            self._write(self.line(env_steps))

    def line(self, env_steps: int) -> str:
        """Steps, return, rate, time left, last checkpoint."""
        returned = f"return {'–' if self.last_return is None else f'{self.last_return:.1f}'}"
        # By what this process did lately: steps from before a resume do not count.
        rate = None if len(self._recent) < 2 else self._rate()
        last = self._last_checkpoint()
        return progress_line(env_steps, self._total_steps, rate=rate, metrics=[returned], checkpoint=last)

    def _rate(self) -> float:
        (then, first), (now, last) = self._recent[0], self._recent[-1]
        return (last - first) / max(now - then, 1e-9)

    def _last_checkpoint(self) -> Checkpoint | None:
        newest = next(newest_first(self._directory.store().names()), None)
        return None if newest is None else Checkpoint(steps_of(newest) or 0)

    def _write(self, line: str) -> None:
        text = f"{ERASE_LINE}{line}" if self._on_terminal else f"{line}\n"
        try:
            print(text, end="", file=self._stream, flush=True)
        except OSError:
            self._interval_s = float("inf")

    def close(self) -> None:
        """Clears the line on a terminal."""
        if self._on_terminal and self.iterations:
            try:
                print(ERASE_LINE, end="", file=self._stream, flush=True)
            except OSError:
                return


def _return_in(metrics: Mapping[str, Any], before: float | None) -> float | None:
    """The mean return, of an evaluation if there is one; with several rewards, that of the first."""
    for wanted in RETURNS:
        for name, value in metrics.items():
            if name == wanted or name.startswith(f"{wanted}/"):
                return value
    return before
