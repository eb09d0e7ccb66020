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


def live_through(directory: Path, sinks: list[str], *, kills: int, seed: int, python: Path | None = None) -> int:
    """Runs the loop to its end, killed that often at random instants; returns how many kills found it alive."""
    draw, done = random.Random(seed), 0
    while True:
        lines = draw.randint(1, 6) if done < kills else None
        code = live(directory, sinks, lines, draw.uniform(0, LONGEST_DELAY_S), python or Path(sys.executable))
        done += code != 0
        if code == 0:
            return done


def live(directory: Path, sinks: list[str], lines: int | None, delay_s: float, python: Path) -> int:
    """One process of the run; killed `delay_s` after it has printed so many lines, never if that is None."""
    command = [str(python), str(SCRIPT), str(directory), *sinks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if lines is not None:
            for _ in range(lines):
                process.stdout.readline()
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said
    assert "failed" not in said, said
    return process.returncode
