"""A run that failed three times from one checkpoint is not resumed a fourth time without a word."""

from pathlib import Path
from typing import Any

import pytest
from tests.runs.toy_training import Training, rows

from perdure import CrashLoopError, Every, Preempted
from perdure.runs.crash_loop import errors_in_a_row, facts_of_end

pytestmark = pytest.mark.usefixtures("global_generators")

RESUMED = {"event": "resumed", "checkpoint": "c"}
COMMITTED = {"event": "committed", "checkpoint": "d"}
ERROR = {"event": "stopped", "why": "E", "traceback": "t"}
CLEAN = {"event": "stopped", "why": "closed"}
SIGNAL = {"event": "signalled"}


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([], 0),
        ([{"event": "started"}, ERROR], 0),
        ([RESUMED, ERROR], 1),
        ([RESUMED, ERROR] * 3, 3),
        ([RESUMED, ERROR, RESUMED, ERROR, RESUMED], 0),  # it was killed: nobody knows that it failed
        ([RESUMED, ERROR, RESUMED, CLEAN], 0),
        ([RESUMED, ERROR, RESUMED, CLEAN, RESUMED, ERROR], 1),
        ([RESUMED, COMMITTED, ERROR, RESUMED, ERROR], 1),
        ([{**RESUMED, "checkpoint": "b"}, ERROR, RESUMED, ERROR], 1),
        ([RESUMED, SIGNAL, ERROR, RESUMED, {"event": "exported"}, ERROR], 2),
    ],
)
def test_errors_in_a_row(events: list[dict[str, Any]], count: int):
    assert len(errors_in_a_row(events, "c")) == count


def fail(directory: Path, number: int = 0) -> None:
    with Training(directory, every=Every(minutes=1000)).run as run:
        run.restore(a=1)
        raise ValueError(f"fault {number}")


def test_the_fourth_resume_is_refused_with_the_last_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(4):
        with pytest.raises(ValueError, match=f"fault {number}"):
            fail(tmp_path / "x", number)

    with pytest.raises(CrashLoopError) as refusal:
        fail(tmp_path / "x", 4)

    assert str(refusal.value).startswith(
        f"{tmp_path}/x: the last 3 resumes of step_0000000000 each ended in an error before anything new was "
        "committed. Another one would most likely do so again. Mend what is wrong, and then resume once with --retry "
        "(a script: PERDURE_RETRY=1). The last error:\n\nTraceback (most recent call last):\n"
    )
    assert str(refusal.value).endswith("ValueError: fault 3")
    monkeypatch.setenv("PERDURE_RETRY", "1")
    with pytest.raises(ValueError, match="fault 5"):
        fail(tmp_path / "x", 5)


def test_a_run_that_comes_a_step_further_each_time_is_in_no_loop(tmp_path: Path):
    for number in range(1, 6):
        training = Training(tmp_path / "x")
        with pytest.raises(ZeroDivisionError), training.run:
            _ = training.restore().go(1) and 1 // 0
        assert len(rows(tmp_path / "x")) == number


def test_stops_are_no_errors():
    assert facts_of_end(Preempted("SIGTERM", "runs/x", "step")) == {"why": "SIGTERM"}
    assert facts_of_end(KeyboardInterrupt()) == {"why": "KeyboardInterrupt: "}
    assert facts_of_end(SystemExit(3)) == {"why": "SystemExit: 3"}


def test_of_a_long_traceback_the_end_is_kept():
    facts = facts_of_end(ValueError("x" * 20_000 + "the end"))

    assert len(facts["why"]) == 1000
    assert len(facts["traceback"]) == 8000
    assert facts["traceback"].endswith("the end\n")


def test_a_secret_in_an_error_is_not_kept():
    facts = facts_of_end(ValueError("cannot open https://me:hunter2@host/x"))

    assert "hunter2" not in f"{facts['why']}{facts['traceback']}"
    assert "https://[withheld]@host/x" in facts["why"]
