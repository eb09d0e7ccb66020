"""Kills a run with sinks again and again, until it is done."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("killed_loop.py")
LONGEST_DELAY_S = 0.01
"""About two boundaries."""
PREEMPTED = 75
"""How a run leaves that was told to stop."""


def live_through(
    directory: Path,
    sinks: list[str],
    *,
    kills: int,
    seed: int,
    python: Path | None = None,
    by: signal.Signals = signal.SIGKILL,
) -> int:
    """Runs the loop to its end, stopped that often at random instants; returns how many signals found it alive."""
    draw, done = random.Random(seed), 0
    while True:
        lines = draw.randint(1, 6) if done < kills else None
        command = [str(python or Path(sys.executable)), str(SCRIPT), str(directory), *sinks]
        code = live(command, lines, draw.uniform(0, LONGEST_DELAY_S), by)
        done += code != 0
        if code == 0:
            return done


def live(command: list[str], lines: int | None, delay_s: float, by: signal.Signals) -> int:
    """One process of the run; gets a signal `delay_s` after it has printed so many lines, none if that is None."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if lines is not None:
            for _ in range(lines):
                process.stdout.readline()
            time.sleep(delay_s)
            process.send_signal(by)
        _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL if by == signal.SIGKILL else PREEMPTED), said
    assert "failed" not in said, said
    return process.returncode
