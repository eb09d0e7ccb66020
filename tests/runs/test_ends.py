"""Ends by errors and time limits: the last boundary is durable, if it was cheap enough to be held in memory."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.stops import SELDOM, assert_goes_on_exactly, event, fail, fail_after, send
from tests.runs.toy_training import Training, checkpoint_names, events

from perdure import Preempted, Run, UsageError
from perdure.runs.directory import step_name
from perdure.runs.durations import process_age_s

pytestmark = pytest.mark.usefixtures("global_generators", "own_handlers")


# Errors.


def test_an_error_in_the_user_s_code_makes_the_last_boundary_durable(
    tmp_path: Path, straight: Path, held_each_time: None
):
    training = Training(tmp_path / "x", every=SELDOM)
    with pytest.raises(ZeroDivisionError):
        fail_after(training, 3)

    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(30)]
    end = event(tmp_path / "x", "stopped")
    assert end["why"] == "ZeroDivisionError: integer division or modulo by zero"
    assert "in fail" in end["traceback"]
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_an_error_while_nothing_is_held_loses_what_came_after_the_last_commit(tmp_path: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM)
    with pytest.raises(ZeroDivisionError):
        fail_after(training, 3)

    assert checkpoint_names(tmp_path / "x") == [step_name(0)]


def test_the_error_of_the_user_is_the_one_that_is_seen(
    tmp_path: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    training = Training(tmp_path / "x", every=SELDOM)
    monkeypatch.setattr(
        "perdure.store.local.LocalStore.free_bytes", lambda store: 0 if training.run.env_steps else None
    )
    with pytest.raises(ZeroDivisionError):
        fail_after(training, 3)

    assert "the last boundary could not be saved: checkpoint step_0000000030 was not committed" in caplog.text


# Holding.


def test_a_state_that_cannot_be_captured_now_is_not_held_and_training_goes_on(tmp_path: Path, held_each_time: None):
    class Moody:
        at: object = 1

        def state_dict(self) -> dict[str, object]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    moody = Moody()
    with Run(tmp_path / "x", every=SELDOM) as run:
        run.restore(moody=moody)
        moody.at = object()
        run.boundary(env_steps=1)
        moody.at = 2
        run.boundary(env_steps=2)
        run.finish()

    assert checkpoint_names(tmp_path / "x")[-1] == step_name(2)


def test_a_boundary_is_held_again_after_one_that_could_not_be(tmp_path: Path, held_each_time: None):
    """A step that is under way at one boundary, for instance, is no reason to hold none of the others."""

    class Busy:
        is_busy = False

        def state_dict(self) -> dict[str, Any]:
            if self.is_busy:
                raise RuntimeError("a step is under way")
            return {}

        def load_state_dict(self, _state: dict[str, Any]) -> None:
            pass

    busy = Busy()
    run = Run(tmp_path / "x", every=SELDOM)
    run.restore(busy=busy)
    for at, busy.is_busy in ((1, False), (2, True), (3, False)):
        run.boundary(env_steps=at)
    with pytest.raises(ZeroDivisionError), run:
        fail()

    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(3)]


def test_a_large_state_is_not_held(tmp_path: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.runs.holding.MOST_BYTES", 1000)
    run = Run(tmp_path / "x", every=SELDOM)
    run.restore(x=np.zeros(126))
    run.boundary(env_steps=1, x=np.ones(126))
    with pytest.raises(ZeroDivisionError), run:
        fail()

    assert checkpoint_names(tmp_path / "x") == [step_name(0)]


def test_what_is_held_is_the_state_of_its_boundary(tmp_path: Path, held_each_time: None):
    x = np.zeros(3)
    run = Run(tmp_path / "x", every=SELDOM)
    run.restore(x=x)
    x += 1
    run.boundary(env_steps=1, x=x)
    x += 1  # in place, afterwards
    with pytest.raises(Preempted):
        send(signal.SIGTERM)

    with Run(tmp_path / "x") as resumed:
        assert resumed.restore(x=np.zeros(3)).x.tolist() == [1.0, 1.0, 1.0]


# Time limits.


def test_a_time_limit_stops_as_a_signal_does(tmp_path: Path, straight: Path, held_each_time: None):
    training = Training(tmp_path / "x", every=SELDOM, stop_after=process_age_s() + 0.3).restore().go(2)

    with pytest.raises(Preempted, match="stopped by its time limit, step_0000000020 is durable"):
        time.sleep(20)
    training.run.finish()
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_perdure_resume_says_when_to_stop(tmp_path: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_STOP_AFTER", f"{process_age_s() + 0.2}")
    training = Training(tmp_path / "x", every=SELDOM, stop_after="5h").restore().go(1)

    with pytest.raises(Preempted):
        time.sleep(20)
    training.run.finish()


@pytest.mark.full
def test_a_run_that_ends_in_time_is_left_alone(tmp_path: Path):
    Training(tmp_path / "x", stop_after=process_age_s() + 3).restore().go(8).run.finish()

    time.sleep(3.2)
    assert events(tmp_path / "x")[-1] == "finished"


def test_a_limit_beyond_all_clocks_is_none(tmp_path: Path):
    """A thread that fails at it would tell pytest."""
    training = Training(tmp_path / "x", every=SELDOM, stop_after="99999999999999999999d").restore().go(2)

    timer = next(thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    timer.join(0.2)
    assert timer.is_alive()
    training.stop()


def test_a_limit_that_is_no_span_of_time_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^stop_after='4 hours': a span of time such as '3h55m'"):
        Run(tmp_path / "x", stop_after="4 hours")
