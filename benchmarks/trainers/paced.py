"""A training that goes on by so many iterations at a time, as its parent process says."""

import json
import sys
import time
from typing import Any

REWARD = "rollout_batch/reward/mean"


class Paced:
    """A `log_fn`: waits for a number on stdin, lets as many iterations pass, and prints their seconds and rewards."""

    def __init__(self) -> None:
        """Two iterations pass at once, in which everything is compiled."""
        self._left, self._started = 2, time.perf_counter()
        self._rewards: list[float] = []

    def __call__(self, metrics: dict[str, Any], steps: int) -> None:
        """Note an iteration; at the end of a stretch, report and wait."""
        if steps == 0:
            return
        if REWARD in metrics:
            self._rewards.append(float(metrics[REWARD]))
        self._left -= 1
        if self._left == 0:
            seconds = time.perf_counter() - self._started
            print(json.dumps({"seconds": seconds, "rewards": self._rewards}), flush=True)
            line = sys.stdin.readline()
            if not line:
                raise SystemExit(0)
            self._left, self._rewards, self._started = int(line), [], time.perf_counter()
