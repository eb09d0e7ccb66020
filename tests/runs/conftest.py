"""The run that others are compared with, and what tests of stops do to the process."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runs.stops import STOP_SIGNALS
from tests.runs.toy_training import Training

from perdure.runs import boundaries, signals


@pytest.fixture
def straight(global_generators: None, tmp_path: Path) -> Path:
    """A run of eight updates that was never stopped."""
    Training(tmp_path / "straight").restore().go(8).run.finish()
    return tmp_path / "straight"


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Whatever a test does, the process has its handlers back."""
    numbers = [*STOP_SIGNALS, signal.SIGUSR2]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    if signals._watch is not None:  # of a run that a failed test left open
        signals._watch.listeners.clear()
        signals._watch.close()
        signals._watch = None
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def held_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if capturing took no time beside an iteration."""
    monkeypatch.setattr(boundaries.Budget, "allows", lambda budget, _now: not budget.is_spent)


@pytest.fixture
def never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an iteration took no time beside capturing."""
    monkeypatch.setattr(boundaries.Budget, "allows", lambda _budget, _now: False)
