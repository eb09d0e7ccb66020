"""When to kill: a random instant after a boundary that a run has come to."""

import json
import random
import time
from pathlib import Path

from perdure.proof.evidence import runs_in


class Watch:
    """Looks at the chains in a folder while a process writes them."""

    def __init__(self, folder: Path) -> None:
        """Begins to watch."""
        self._folder = folder
        self._seen: tuple[int, float] | None = None

    def __call__(self) -> bool:
        """Notes the time of the first boundary; never says that the process is to be killed."""
        if self._seen is None and (at := latest(self._folder)) >= 0:
            self._seen = at, time.monotonic()
        return False

    def pace_s(self, end: int) -> float:
        """Seconds that a boundary took, if the process has just ended at boundary `end`."""
        if self._seen is None or end <= self._seen[0]:
            return 0.0
        return (time.monotonic() - self._seen[1]) / (end - self._seen[0])


class Killer:
    """Says when to kill: a random part of an iteration after a boundary."""

    def __init__(self, folder: Path, boundary: int, pace_s: float, rng: random.Random) -> None:
        """Prepares; the instant is drawn now."""
        self._folder = folder
        self._boundary = boundary
        self._delay_s = rng.random() * pace_s
        self._due: float | None = None

    def __call__(self) -> bool:
        """Whether it is time."""
        if self._due is None and latest(self._folder) >= self._boundary:
            self._due = time.monotonic() + self._delay_s
        return self._due is not None and time.monotonic() >= self._due


def latest(folder: Path) -> int:
    """The boundary of the last whole line of any chain in a folder, unproven; -1 if there is none."""
    found = -1
    for run in runs_in(folder).values():
        data = run.chain.read_bytes() if run.chain.exists() else b""
        line = data[: data.rfind(b"\n") + 1].rstrip(b"\n").rpartition(b"\n")[2]
        found = max(found, json.loads(line)["boundary"] if line else -1)
    return found
