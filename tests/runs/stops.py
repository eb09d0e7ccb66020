"""What the tests of stops and of other ends share."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runs.toy_training import Training, rows, states

from perdure import Every, Preempted
from perdure.runs.directory import step_name
from perdure.runs.lineage import read_lineage

SELDOM = Every(minutes=1000)
STOP_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


def fail() -> None:
    """A fault of the user's."""
    _ = 1 // 0


def fail_after(training: Training, updates: int) -> None:
    """A fault of the user's after so many updates."""
    with training.run:
        training.restore().go(updates)
        fail()


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def event(directory: Path, name: str) -> dict[str, Any]:
    return next(event for event in reversed(read_lineage(directory / "lineage.jsonl")) if event["event"] == name)


def assert_goes_on_exactly(directory: Path, straight: Path) -> None:
    """The run in `directory` is resumed, finished, and like the one that was never stopped."""
    Training(directory, every=SELDOM).restore().go(8 - len(rows(directory))).run.finish()
    assert states(directory)[step_name(80)] == states(straight)[step_name(80)]
    assert rows(directory) == rows(straight)


def stopped(training: Training, act: Callable[[], object]) -> Preempted:
    """What ended the training when `act` was called."""
    with pytest.raises(Preempted) as caught:
        act()
    with pytest.raises(Preempted):  # the run has ended for good, whoever caught that
        training.boundary()
    training.run.finish()
    training.run.close()
    return caught.value
