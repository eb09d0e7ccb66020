"""Stopping by signals: the last boundary is durable before a run ends; the resumed run is the straight one."""

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
import pytest
from tests.runs.stops import SELDOM, STOP_SIGNALS, assert_goes_on_exactly, event, fail, send, stopped
from tests.runs.toy_training import Training, checkpoint_names, events, rows, states

from perdure import BoundaryReset, CommitError, Every, Preempted, Run
from perdure.runs import boundaries, signals, stopping
from perdure.runs.directory import step_name
from perdure.sinks import TensorBoard
from perdure.store.filesystem import FileSystem

pytestmark = pytest.mark.usefixtures("global_generators", "own_handlers")


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
    time.sleep(signals.TOGETHER_S)
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    training.stop()
    assert checkpoint_names(tmp_path / "x") == [step_name(0)]


def test_one_ctrl_c_that_is_passed_on_as_well_is_one(tmp_path: Path, straight: Path, never_held: None):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)

    for _ in range(3):  # of the terminal, of a launcher, of `timeout`
        send(signal.SIGINT)
    training.update()

    assert stopped(training, training.boundary).why == "SIGINT"
    assert_goes_on_exactly(tmp_path / "x", straight)


@pytest.fixture
def impatient() -> Iterator[None]:
    """A test that waits for itself fails after some seconds."""

    def give_up(number: int, _frame: object) -> None:
        raise AssertionError("it waits for a lock that it holds itself")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def signal_at(
    monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, place: str, number: int = signal.SIGTERM
) -> list[str]:
    """Sends a signal when `place` (part of a path) was worked on by the main thread; what it did so far is returned."""
    original, done = getattr(owner, method), []

    def at_it(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        on = str(Path(f"/proc/self/fd/{arguments[0]}").readlink()) if owner is os else str(arguments[-1])
        if not done and place in on and threading.current_thread() is threading.main_thread():
            done.append(on)
            send(number)
        return result

    monkeypatch.setattr(owner, method, at_it)
    return done


@pytest.fixture
def main_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the thread beside the main thread were always too late."""
    monkeypatch.setattr(stopping.Stopper, "_make_durable", lambda _stopper: None)


ON_THE_WAY_OUT = [(os, "fsync", "lineage"), (FileSystem, "rename", "step_"), (os, "fsync", "metrics")]


@pytest.mark.parametrize(("owner", "method", "place"), ON_THE_WAY_OUT, ids=["lineage", "checkpoint", "metrics"])
def test_another_signal_on_the_way_out_changes_nothing(
    tmp_path: Path,
    straight: Path,
    monkeypatch: pytest.MonkeyPatch,
    held_each_time: None,
    main_thread_alone: None,
    impatient: None,
    owner: Any,
    method: str,
    place: str,
):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    done = signal_at(monkeypatch, owner, method, place, signal.SIGUSR1)

    left = stopped(training, lambda: send(signal.SIGTERM))

    assert done
    assert (left.why, left.checkpoint) == ("SIGTERM", step_name(30))
    assert events(tmp_path / "x") == ["started", "committed", "committed", "signalled", "stopped"]
    assert_goes_on_exactly(tmp_path / "x", straight)


@pytest.mark.parametrize(("owner", "method", "place"), ON_THE_WAY_OUT, ids=["lineage", "checkpoint", "metrics"])
def test_a_signal_does_not_hide_the_error_that_ends_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held_each_time: None,
    main_thread_alone: None,
    impatient: None,
    owner: Any,
    method: str,
    place: str,
):
    training = Training(tmp_path / "x", every=SELDOM)
    done: list[list[str]] = []

    def train() -> None:
        with training.run:
            training.restore().go(3)
            done.append(signal_at(monkeypatch, owner, method, place))
            fail()

    with pytest.raises(ZeroDivisionError):
        train()

    assert done[0]
    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(30)]
    assert event(tmp_path / "x", "stopped")["why"].startswith("ZeroDivisionError")


@pytest.mark.parametrize("leave", [Training.stop, lambda training: training.run.__exit__(None, None, None)])
def test_a_signal_while_the_run_is_closed_lets_it_be_closed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held_each_time: None,
    main_thread_alone: None,
    impatient: None,
    leave: Callable[[Training], None],
):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    done = signal_at(monkeypatch, os, "fsync", "lineage")

    leave(training)

    assert done
    assert event(tmp_path / "x", "stopped")["why"] == "closed"


def test_a_signal_while_a_summary_writer_is_made(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch, held_each_time: None, impatient: None
):
    pytest.importorskip("tensorboard")
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    begin = TensorBoard.begin

    def signalled(sink: TensorBoard, info: Any) -> None:
        send(signal.SIGTERM)
        begin(sink, info)

    monkeypatch.setattr(TensorBoard, "begin", signalled)

    assert stopped(training, training.run.summary_writer).checkpoint == step_name(30)
    assert_goes_on_exactly(tmp_path / "x", straight)


def test_a_second_ctrl_c_in_the_middle_of_a_line_leaves_the_lineage_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held_each_time: None,
    main_thread_alone: None,
):
    training = Training(tmp_path / "x", every=SELDOM).restore().go(3)
    monkeypatch.setattr(signals, "TOGETHER_S", 0.0)
    done = signal_at(monkeypatch, os, "fsync", "lineage", signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), training.run:
        send(signal.SIGINT)

    assert done
    assert events(tmp_path / "x")[-2:] == ["signalled", "stopped"]
    assert event(tmp_path / "x", "stopped")["why"] == "KeyboardInterrupt: "


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
