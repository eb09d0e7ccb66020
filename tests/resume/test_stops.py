"""Signals at random instants, to the process and to its whole group: durable at once, code 75, an exact resume.

Each case is a process of its own, for the process is what is tested. CASES 21.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.runs.toy_training import rows, states

from perdure.runs.lineage import read_lineage

KINDS = ["sync", "async-fork", "async-spawn", "async-forkserver", "subproc"]
NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
PHASES = ["rollout", "update", "compiled", "evaluation", "boundary"]
BOUND_S = 2.0
"""From the signal to a durable checkpoint; an iteration of the script takes a fiftieth of that."""

SOME = [
    ("sync", signal.SIGTERM, "process"),
    ("sync", signal.SIGINT, "group"),
    ("async-fork", signal.SIGTERM, "group"),
    ("async-spawn", signal.SIGUSR1, "group"),
    ("async-forkserver", signal.SIGTERM, "group"),
]
"""A case of each kind, for every day."""


class Trained:
    """The script in a process of its own, in a group of its own."""

    def __init__(self, directory: Path, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.resume.stopped_script", str(directory), kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Else a Ctrl-C that whoever runs the tests ignores (a job in the background) is ignored here, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def said(self) -> Iterator[str]:
        """The phases, as they come."""
        assert self._process.stdout is not None
        return (line.strip() for line in self._process.stdout)

    def strike(self, number: int, whom: str) -> None:
        (os.killpg if whom == "group" else os.kill)(self._process.pid, number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it wrote to stderr."""
        _, errors = self._process.communicate(timeout=120)
        return self._process.returncode, errors


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run that was never stopped; the same for all vectors of Gymnasium."""
    known: dict[str, Path] = {}

    def run(kind: str) -> Path:
        family = kind.partition("-")[0].replace("async", "sync")
        if family not in known:
            known[family] = tmp_path_factory.mktemp("straight") / family
            assert Trained(known[family], family).end()[0] == 0
        return known[family]

    return run


def last_state(directory: Path) -> str:
    return list(states(directory).values())[-1]


def events(directory: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in read_lineage(directory / "lineage.jsonl") if event["event"] == name]


def stop(directory: Path, kind: str, number: signal.Signals, whom: str, draw: random.Random) -> None:
    """Strikes in a random phase of a random iteration, a random moment into it."""
    trained = Trained(directory, kind)
    phase, times = draw.choice(PHASES), draw.randint(1, 9)
    said = trained.said()
    for line in said:
        times -= line == phase
        if not times:
            break
    draw_s = draw.uniform(0, 0.01)
    time.sleep(draw_s)
    trained.strike(number, whom)
    code, errors = trained.end()
    assert (code, f"stopped by {number.name}" in errors) == (75, True), (phase, errors)
    # Python's resource tracker, which Stable-Baselines3 starts, complains of SIGUSR1 in a traceback.
    assert "Traceback" not in errors or kind == "subproc", errors


def assert_stops_exactly(
    directory: Path, straight: Path, kind: str, number: signal.Signals, whom: str, draw: random.Random
) -> None:
    stop(directory, kind, number, whom, draw)
    [signalled] = events(directory, "signalled")
    assert signalled["signal"] == number.name
    assert signalled["checkpoint"] == list(states(directory))[-1]
    assert signalled["after_s"] < BOUND_S
    code, errors = Trained(directory, kind).end()
    assert code == 0, errors
    assert len(events(directory, "resumed")) == 1
    assert last_state(directory) == last_state(straight)
    assert rows(directory) == rows(straight)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "number", "whom"), SOME)
def test_a_signal_loses_nothing(
    tmp_path: Path, straight: Callable[[str], Path], kind: str, number: signal.Signals, whom: str
):
    draw = random.Random(f"{kind} {number} {whom}")
    assert_stops_exactly(tmp_path / "x", straight(kind), kind, number, whom, draw)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number", "whom"), [*product(KINDS, NUMBERS, ["process", "group"])], ids=lambda part: str(part)
)
def test_signals_at_thirty_random_instants_lose_nothing(
    tmp_path: Path, straight: Callable[[str], Path], kind: str, number: signal.Signals, whom: str
):
    draw = random.Random(f"slow {kind} {number} {whom}")
    assert_stops_exactly(tmp_path / "x", straight(kind), kind, number, whom, draw)


@pytest.mark.full
def test_a_run_that_is_stopped_again_and_again_gets_to_its_end(tmp_path: Path, straight: Callable[[str], Path]):
    draw, directory = random.Random(7), tmp_path / "x"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        trained = Trained(directory, "sync")
        lines = draw.randint(10, 40)
        for _ in zip(range(lines), trained.said(), strict=False):
            pass
        trained.strike(number, "group")
        assert trained.end()[0] == 75
    assert Trained(directory, "sync").end()[0] == 0

    assert last_state(directory) == last_state(straight("sync"))
    assert rows(directory) == rows(straight("sync"))
    assert len(events(directory, "resumed")) == 3


ENDS = """
import atexit, sys, time, perdure
run = perdure.Run(sys.argv[1], every=perdure.Every(minutes=1000), horizon=3)
if sys.argv[2] == "finish":
    atexit.register(run.finish)
run.restore(x=0)
run.boundary(env_steps=1, x=1)
time.sleep(0.5)
run.boundary(env_steps=3 if sys.argv[2] == "finish" else 2, x=2)
if sys.argv[2] == "error":
    raise ValueError("mine")
if sys.argv[2] == "exit":
    sys.exit(3)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "code", "steps", "event", "why"),
    [
        ("error", 1, 2, "stopped", "ValueError: mine"),
        ("exit", 3, 2, "stopped", "SystemExit: the process ended without finish or close"),
        ("last line", 0, 2, "stopped", "SystemExit: the process ended without finish or close"),
        ("finish", 0, 3, "finished", None),
    ],
)
def test_however_a_script_ends_its_last_boundary_is_durable(
    tmp_path: Path, how: str, code: int, steps: int, event: str, why: str | None
):
    """Also without `with`: the interpreter's own hooks tell the run."""
    command = [sys.executable, "-c", ENDS, str(tmp_path / "x"), how]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, "ValueError: mine" in result.stderr) == (code, how == "error"), result.stderr
    assert list(states(tmp_path / "x"))[-1] == f"step_{steps:010d}"
    [end] = events(tmp_path / "x", event)
    assert end.get("why") == why
