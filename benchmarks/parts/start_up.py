"""Part: how fast the command line answers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import perdure
from benchmarks.common.report import Part, Target, number, time_table
from benchmarks.common.timing import Sample, Work, interleaved, note, seconds

PLAIN, IMPORT = "python, nothing imported", "import perdure"
SHOW, LEAVES = "perdure show, 10,000 leaves", "perdure show --leaves, 10,000 leaves"

TEXT = """\
Whole processes, from launch to exit, files and bytecode in the page cache. The checkpoint holds 10,000 leaves in one
component: 5,000 arrays of 8 float32 and 5,000 plain numbers."""


def measure(directory: Path, repeats: int) -> Part:
    """Seconds from launch to exit."""
    note("start-up")
    path = directory / "checkpoint"
    perdure.save(path, state=_many_leaves(10_000))
    samples = interleaved(
        {
            PLAIN: _process("-c", "pass"),
            IMPORT: _process("-c", "import perdure"),
            SHOW: _process("-m", "perdure", "show", str(path)),
            LEAVES: _process("-m", "perdure", "show", "--leaves", str(path)),
        },
        repeats,
    )
    return Part("Start-up", TEXT, [time_table(samples, unit="s")], _targets(samples))


def _many_leaves(count: int) -> dict[str, dict[str, object]]:
    return {
        f"group_{group:02d}": {f"leaf_{at:02d}": np.full(8, at, np.float32) if at % 2 else at / 3 for at in range(100)}
        for group in range(count // 100)
    }


def _process(*arguments: str) -> Work:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def work(_turn: int) -> float:
        return seconds(
            lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
        )

    return work


def _targets(samples: dict[str, Sample]) -> list[Target]:
    limit = "reading and proving a manifest of this size is one pass of `json` and one walk in Python."
    return [
        _within(samples, IMPORT, 0.3, "the interpreter, NumPy and this package's own modules."),
        _within(samples, SHOW, 1.0, limit),
    ]


def _within(samples: dict[str, Sample], name: str, most_s: float, limit: str) -> Target:
    found = samples[name].median
    return Target(name, f"≤ {most_s} s", f"{number(found)} s", is_met=found <= most_s, limit=limit)
