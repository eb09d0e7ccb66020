"""Stopping: the last boundary is durable before a run ends, whatever ends it; the resumed run is the straight one."""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.runs.toy_training import Training, checkpoint_names, events, rows, states

from perdure import BoundaryReset, CommitError, Every, Preempted, Run, UsageError
from perdure.runs import boundaries, signals, stopping
from perdure.runs.directory import step_name
from perdure.runs.durations import process_age_s
from perdure.runs.lineage import read_lineage

pytestmark = pytest.mark.usefixtures("global_generators", "own_handlers")

SELDOM = Every(minutes=1000)
STOP_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Whatever a test does, the process has its handlers back."""
    numbers = [*STOP_SIGNALS, signal.SIGUSR2]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    if signals._watch is not None:  # of a run that a failed test left open
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


# Signals.


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
def test_a_signal_makes_the_last_boundary_durable_and_leaves(
    tmp_path: Path, straight: Path, held_each_time: None, number: signal.Signals
):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    assert checkpoint_names(tmp_path / "x") == [step_name(0)]

    training.update()  # of a boundary that never comes
    left = stopped(training, lambda: send(number))

    assert (left.code, left.why, left.checkpoint) == (75, number.name, step_name(30))
    assert str(left) == (
        f"{tmp_path}/x: stopped by {number.name}, step_0000000030 is durable; go on with: perdure resume {tmp_path}/x"
    )
    assert states(tmp_path / "x")[step_name(30)] == states(straight)[step_name(30)]
    assert event(tmp_path / "x", "signalled")["checkpoint"] == step_name(30)
    assert event(tmp_path / "x", "stopped")["why"] == number.name
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_without_a_held_boundary_the_next_one_is_saved(tmp_path: Path, straight: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)

    send(signal.SIGTERM)
    assert training.run.should_stop
    training.update()
    left = stopped(training, training.boundary)

    assert left.checkpoint == step_name(40)
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_a_boundary_that_is_saved_already_is_left_at_once(tmp_path: Path, straight: Path):
    training = Training(tmp_path / "x", every=Every(updates=3)).restore().go(3)
    training.update()

    left = stopped(training, lambda: send(signal.SIGTERM))

    assert left.checkpoint == step_name(30)
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_before_the_first_boundary_there_is_boundary_0(tmp_path: Path, straight: Path):
    training = Training(tmp_path / "x", every=SELDOM).restore()

    assert stopped(training, lambda: send(signal.SIGTERM)).checkpoint == step_name(0)
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_a_signal_while_the_run_is_opened_waits_until_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = Training(tmp_path / "x")
    monkeypatch.setattr(training.learner, "state_dict", lambda: send(signal.SIGTERM) or {"a": 1})

    with pytest.raises(Preempted, match=r"step_0000000000 is durable"):
        training.restore()
    assert events(tmp_path / "x")[-2:] == ["signalled", "stopped"]


@pytest.mark.parametrize("background", [True, False])
def test_a_signal_in_the_middle_of_a_commit_does_not_break_it(tmp_path: Path, straight: Path, background: bool):
    def signalled(_path: Path) -> None:
        if len(checkpoint_names(tmp_path / "x")) == 3:
            send(signal.SIGTERM)
            time.sleep(0.05)

    options: dict[str, Any] = {"background": background, "after_commit": signalled}
    training = Training(tmp_path / "x", **options).restore()
    with pytest.raises(Preempted) as caught:
        training.go(8)

    assert caught.value.checkpoint == checkpoint_names(tmp_path / "x")[-1] >= step_name(20)
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_a_compiled_call_is_not_waited_for(tmp_path: Path, held_each_time: None):
    """The main thread is away from Python for a while; the checkpoint is durable long before it comes back."""
    training = Training(tmp_path / "x", every=SELDOM).restore().go(2)
    much, timer = bytes(400 << 20), threading.Timer(0.05, send, [signal.SIGTERM])
    timer.start()
    started = time.monotonic()

    with pytest.raises(Preempted):
        hashlib.sha256(much)
    took_s = time.monotonic() - started

    timings = [json.loads(line) for line in (tmp_path / "x" / "timings.jsonl").read_text().splitlines()]
    assert event(tmp_path / "x", "signalled")["after_s"] == timings[-1]["signal_to_durable_s"] < took_s / 2
    assert training.run.is_finished is False


def test_an_older_boundary_is_saved_if_the_next_one_does_not_come(
    tmp_path: Path, straight: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stopping, "PATIENCE_S", 0.1)
    training = Training(tmp_path / "x", every=SELDOM).restore().go(2)
    monkeypatch.setattr(boundaries.Budget, "allows", lambda _budget, _now: False)
    training.go(1)  # which is not held

    send(signal.SIGTERM)
    deadline = time.monotonic() + 20
    while step_name(20) not in checkpoint_names(tmp_path / "x") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(20)]
    assert len(rows(tmp_path / "x")) == 3

    training.run.close()  # as if killed now: the row of the boundary that was lost is written again
    assert states(tmp_path / "x")[step_name(20)] == states(straight)[step_name(20)]
    resumed = Training(tmp_path / "x", every=SELDOM).restore()
    assert len(rows(tmp_path / "x")) == 2
    resumed.stop()
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_usr2_saves_and_goes_on(tmp_path: Path, straight: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)

    send(signal.SIGUSR2)
    wait_until(lambda: training.run._stopper is not None and training.run._stopper.wants_checkpoint)
    training.go(3)

    assert not training.run.should_stop
    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(40)]
    training.go(2).run.finish()
    assert states(tmp_path / "x")[step_name(80)] == states(straight)[step_name(80)]


def test_usr2_saves_what_is_held_at_once(tmp_path: Path, held_each_time: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)

    send(signal.SIGUSR2)
    wait_until(lambda: step_name(30) in checkpoint_names(tmp_path / "x"))
    training.go(1)

    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(30)]
    training.stop()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_second_ctrl_c_does_not_wait_for_a_boundary(tmp_path: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(1)

    send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    training.stop()
    assert checkpoint_names(tmp_path / "x") == [step_name(0)]


def test_a_signal_that_the_process_was_told_to_ignore_is_ignored(tmp_path: Path, held_each_time: None):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a shell does for a job in the background
    training = Training(tmp_path / "x", every=SELDOM).restore().go(1)

    send(signal.SIGINT)

    assert not training.run.should_stop
    training.go(1).stop()


def test_a_loop_that_is_left_because_of_should_stop_is_no_end(tmp_path: Path, straight: Path, held_each_time: None):
    """The process must not end with code 0, upon which nobody would start it again."""
    with pytest.raises(Preempted, match="stopped by SIGTERM, step_0000000020 is durable") as caught:
        leave_when_told(Training(tmp_path / "x", every=SELDOM))

    assert (caught.value.code, events(tmp_path / "x")[-1]) == (75, "stopped")
    assert_goes_on_exactly(tmp_path / "x", straight)


def leave_when_told(training: Training) -> None:
    """A user's loop that looks at `should_stop`, and goes on to no boundary."""
    with training.run:
        training.restore().go(2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(boundaries.Budget, "allows", lambda _budget, _now: False)
            training.go(1)  # which is not held
        send(signal.SIGTERM)
        assert training.run.should_stop


class Dying:
    """Does something when it is collected, where nothing can be raised."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __del__(self) -> None:
        self._act()


def test_a_stop_that_is_lost_in_a_destructor_is_raised_again(tmp_path: Path, straight: Path, held_each_time: None):
    """As in JAX's callback of the garbage collector, which is where the first instruction after a compilation is."""
    training = Training(tmp_path / "x", every=SELDOM).restore().go(2)
    hook = sys.unraisablehook

    def lose() -> None:
        dying = Dying(lambda: send(signal.SIGTERM))
        del dying
        time.sleep(20)

    assert stopped(training, lose).checkpoint == step_name(20)
    assert_goes_on_exactly(tmp_path / "x", straight)
    assert sys.unraisablehook == hook


def test_other_exceptions_that_are_lost_are_told_as_ever(
    tmp_path: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch
):
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))
    training = Training(tmp_path / "x", every=SELDOM).restore().go(1)
    stopped(training, lambda: send(signal.SIGTERM))

    dying = Dying(fail)
    del dying
    assert told == [ZeroDivisionError]


def test_a_signal_at_the_very_end_leaves_no_thread_behind(tmp_path: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    send(signal.SIGTERM)
    wait_until(lambda: any(thread.name == "perdure-stop" for thread in threading.enumerate()))
    training.run.close()

    wait_until(lambda: all(thread.name != "perdure-stop" for thread in threading.enumerate()))
    assert events(tmp_path / "x")[-1] == "stopped"


def test_handlers_are_put_back(tmp_path: Path):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    first, second = Training(tmp_path / "x").restore(), Training(tmp_path / "y").restore()
    first.stop()
    during = [signal.getsignal(number) for number in STOP_SIGNALS]
    second.run.finish()

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before != during


def test_a_run_that_cannot_be_opened_leaves_no_handlers(tmp_path: Path):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    training = Training(tmp_path / "x").restore()
    with pytest.raises(BlockingIOError):
        Training(tmp_path / "x").restore()
    training.stop()

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_run_that_is_dropped_leaves_no_handlers(tmp_path: Path):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]

    Training(tmp_path / "x").restore().go(1)

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_the_user_s_own_handler_is_called_after_the_commit(tmp_path: Path, held_each_time: None):
    saved: list[list[str]] = []
    signal.signal(signal.SIGUSR1, lambda _number, _frame: saved.append(checkpoint_names(tmp_path / "x")))
    training = Training(tmp_path / "x", every=SELDOM).restore().go(1)

    stopped(training, lambda: send(signal.SIGUSR1))

    assert saved == [[step_name(0), step_name(10)]]


def test_two_runs_are_both_saved(tmp_path: Path, held_each_time: None):
    with Training(tmp_path / "y", every=SELDOM).run as other:
        other.restore(a=1)
        other.boundary(env_steps=5, a=2)
        training = Training(tmp_path / "x", every=SELDOM).restore().go(1)
        stopped(training, lambda: send(signal.SIGTERM))
        with pytest.raises(Preempted):
            other.boundary(env_steps=6, a=3)

    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(10)]
    assert checkpoint_names(tmp_path / "y") == [step_name(0), step_name(5)]


def test_a_run_of_another_thread_is_opened_without_handlers(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def train() -> None:
        training = Training(tmp_path / "x").restore().go(2)
        seen.append(signal.getsignal(signal.SIGTERM))
        training.run.finish()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [before]
    assert events(tmp_path / "x")[-1] == "finished"


def test_a_forked_child_dies_of_a_signal_as_it_would_have_before(tmp_path: Path, held_each_time: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(1)
    pid = os.fork()
    if not pid:  # pragma: no cover - the child
        time.sleep(30)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)

    assert os.WTERMSIG(status) == signal.SIGTERM
    assert not training.run.should_stop
    training.stop()
    assert checkpoint_names(tmp_path / "x") == [step_name(0)]


def test_a_failing_disk_is_told_and_not_taken_for_a_stop(
    tmp_path: Path, straight: Path, held_each_time: None, monkeypatch: pytest.MonkeyPatch
):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(2)
    with monkeypatch.context() as patched:
        patched.setattr("perdure.store.local.LocalStore.free_bytes", lambda _store: 0)
        with pytest.raises(CommitError, match="step_0000000020 was not committed"):
            send(signal.SIGTERM)
        with pytest.raises(CommitError, match="step_0000000030 was not committed"):
            training.go(1)
    training.update()
    with pytest.raises(Preempted):
        training.boundary()
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_where_resets_decide_a_stop_goes_back_to_the_cadence(tmp_path: Path):
    run = Run(tmp_path / "x", boundary_reset=BoundaryReset(seed=1, every=Every(updates=2)))
    run.restore(envs=gymnasium.make("CartPole-v1"), x=0)
    for at in range(1, 4):
        run.boundary(env_steps=at, x=at)

    with pytest.raises(Preempted, match="step_0000000002 is durable"):
        send(signal.SIGTERM)
    assert checkpoint_names(tmp_path / "x")[-1] == step_name(2)


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


def test_a_run_that_ends_in_time_is_left_alone(tmp_path: Path):
    Training(tmp_path / "x", stop_after=process_age_s() + 0.3).restore().go(8).run.finish()

    time.sleep(0.5)
    assert events(tmp_path / "x")[-1] == "finished"


def test_a_limit_that_is_no_span_of_time_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^stop_after='4 hours': a span of time such as '3h55m'"):
        Run(tmp_path / "x", stop_after="4 hours")
