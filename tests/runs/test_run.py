"""`Run`: begin, resume and finish; a resumed run is the one that was never stopped."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import Learner, Training, events, names, rows, states

from perdure import Every, ForgottenValueError, Run, UsageError
from perdure.runs import run as run_module
from perdure.runs.directory import step_name

pytestmark = pytest.mark.usefixtures("global_generators")


# Begin.


def test_a_fresh_run_commits_boundary_0_and_gives_everything_back(tmp_path: Path):
    training = Training(tmp_path / "runs" / "x")
    s = training.run.restore(learner=training.learner, rng=training.rng, observation=training.observation)

    assert s.learner is training.learner
    assert s.rng is training.rng
    assert s.observation is training.observation
    assert (s.env_steps, s.updates) == (0, 0)
    assert (training.run.resumed, training.run.notices, training.run.boundary_number) == (False, [], 0)
    assert list(states(tmp_path / "runs" / "x")) == [step_name(0)]
    assert names(tmp_path / "runs" / "x") == [
        *(".writer.lock", "checkpoints", "lineage.jsonl", "metrics.jsonl", "run.json", "timings.jsonl"),
    ]
    training.stop()


def test_making_a_run_touches_nothing(tmp_path: Path):
    Training(tmp_path / "x")

    assert names(tmp_path) == []


def test_counting_may_start_anywhere(tmp_path: Path):
    with Run(tmp_path / "x") as run:
        s = run.restore(env_steps=500, x=1)
        assert (s.env_steps, run.env_steps) == (500, 500)
        assert list(states(tmp_path / "x")) == [step_name(500)]
        with pytest.raises(UsageError):
            run.boundary(env_steps=500, x=2)
        run.boundary(env_steps=int_like(501), x=2)


def int_like(number: int) -> Any:
    return np.int64(number)


def test_the_directory_is_fixed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = Run("x")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    run.restore(a=1)
    run.close()

    assert run.directory == str(tmp_path / "x")
    assert names(tmp_path / "elsewhere") == []


def test_a_run_that_another_process_began_meanwhile_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The decision counts only under the lock: two fresh starts at once must not give one directory two identities."""
    acquire = run_module.acquire

    def slow(path: Path) -> Any:
        monkeypatch.setattr(run_module, "acquire", acquire)
        Training(tmp_path / "x").restore().go(2).stop()
        return acquire(path)

    monkeypatch.setattr(run_module, "acquire", slow)
    training = Training(tmp_path / "x").restore()

    assert (training.run.resumed, training.run.boundary_number) == (True, 2)
    training.stop()
    assert events(tmp_path / "x").count("started") == 1


def test_the_caller_s_wall_clock_seeds_and_generators_play_no_part_in_a_run_s_identity(tmp_path: Path):
    before = repr((random.getstate(), np.random.get_state()))

    with Run(tmp_path / "x") as run:
        run.restore(x=1)
        run.boundary(env_steps=1, x=1)
        run.finish(x=1)

    assert repr((random.getstate(), np.random.get_state())) == before


# Resume.


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_resumed_run_equals_the_one_that_was_never_stopped(tmp_path: Path, straight: Path, stop: int):
    directory = tmp_path / "stopped"
    Training(directory).restore().go(stop).stop()

    training = Training(directory, seed=9).restore()
    assert training.run.resumed
    assert (training.run.env_steps, training.run.updates, training.run.boundary_number) == (10 * stop, stop, stop)
    training.go(8 - stop)
    training.run.finish()

    assert states(directory) == states(straight)
    assert (directory / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


def test_three_stops_in_one_run_change_nothing(tmp_path: Path, straight: Path):
    for seed, updates in enumerate((2, 1, 3, 2)):
        Training(tmp_path / "x", seed=seed).restore().go(updates).stop()

    assert states(tmp_path / "x") == states(straight)


def test_a_second_resume_equals_the_first(tmp_path: Path, straight: Path):
    """No flag or counter of a resume leaks into the state: two in a row, with no step between them, change nothing."""
    Training(tmp_path / "x").restore().go(3).stop()
    for seed in (4, 5):
        training = Training(tmp_path / "x", seed=seed).restore()
        assert states(tmp_path / "x") == {name: states(straight)[name] for name in states(tmp_path / "x")}
        training.stop()
    Training(tmp_path / "x", seed=6).restore().go(5).stop()

    assert states(tmp_path / "x") == states(straight)


def test_saving_seldom_equals_saving_often(tmp_path: Path, straight: Path):
    training = Training(tmp_path / "x", every=Every()).restore().go(8)
    training.run.finish()

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(80)]
    assert {name: states(straight)[name] for name in states(tmp_path / "x")} == states(tmp_path / "x")


def test_rows_after_the_last_checkpoint_are_cut_and_written_again(tmp_path: Path, straight: Path):
    Training(tmp_path / "x", every=Every(updates=3)).restore().go(5).stop()
    assert len(rows(tmp_path / "x")) == 5

    training = Training(tmp_path / "x", every=Every(updates=3), seed=3).restore()
    assert training.run.boundary_number == 3
    assert len(rows(tmp_path / "x")) == 3
    assert any("rows after the checkpoint were cut off" in notice for notice in training.run.notices)
    training.go(5).run.finish()

    assert rows(tmp_path / "x") == rows(straight)


@pytest.mark.parametrize("lost", ["learner", "momentum", "rng", "python", "numpy", "observation"])
def test_a_lost_component_would_be_seen(tmp_path: Path, straight: Path, lost: str):
    """The twin: each part of the state, reset at the resume, leads to another run."""
    Training(tmp_path / "x").restore().go(4).stop()
    training = Training(tmp_path / "x", seed=0).restore()
    match lost:
        case "learner":
            training.learner.weights = np.zeros(2)
        case "momentum":
            training.learner.momentum = np.zeros(2)
        case "rng":
            training.rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
        case "python":
            random.seed(0)
        case "numpy":
            np.random.seed(0)
        case _:
            training.observation = np.zeros(2, np.float32)
    training.go(4).stop()

    assert states(tmp_path / "x")[step_name(80)] != states(straight)[step_name(80)]


def test_a_finished_run_can_be_opened_and_is_finished(tmp_path: Path, straight: Path):
    before = states(straight)
    training = Training(straight).restore()

    assert training.run.is_finished
    training.run.finish()
    assert states(straight) == before


# Finish.


def test_finish_after_a_saved_boundary_needs_nothing(tmp_path: Path):
    training = Training(tmp_path / "x").restore().go(2)
    training.run.finish()

    assert list(states(tmp_path / "x"))[-1] == step_name(20)
    assert events(tmp_path / "x")[-1] == "finished"


def test_finish_without_a_horizon_saves_the_last_state_or_says_what_it_needs(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(learner=Learner(), a=1, b=2)
        run.boundary(env_steps=10, a=3, b=4)

        with pytest.raises(ForgottenValueError) as caught:
            run.finish()
        assert str(caught.value) == (
            "finish: boundary 1 (env_steps=10) is not saved. Give the Run a horizon, or call "
            "finish(env_steps=…, a=a, b=b)."
        )
        with pytest.raises(ForgottenValueError, match=r"\['b'\]"):
            run.finish(a=3)
        run.finish(a=3, b=4)

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


def test_finish_short_of_the_horizon_says_so(tmp_path: Path):
    """A loop of whole updates ends below a total that they do not divide."""
    with Run(tmp_path / "x", horizon=25, every=Every()) as run:
        run.restore(a=1)
        for env_steps in (10, 20):
            run.boundary(env_steps=env_steps, a=env_steps)

        with pytest.raises(ForgottenValueError) as caught:
            run.finish()
        assert str(caught.value) == (
            "finish: boundary 2 (env_steps=20) is not saved, for it does not reach the horizon of 25 steps. Give the "
            "Run the total that the loop really reaches as its horizon, or call finish(env_steps=…, a=a)."
        )
        run.finish(env_steps=20, a=20)

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(20)]


def test_finish_may_make_the_last_boundary_itself(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(a=1)
        run.boundary(env_steps=10, a=2)
        run.finish(env_steps=15, a=3)
        assert (run.env_steps, run.boundary_number) == (15, 2)

    with Run(tmp_path / "x") as run:
        assert run.restore(a=0).a == 3


def test_a_refused_finish_has_not_moved_the_counters(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(a=1)

        with pytest.raises(ForgottenValueError):
            run.finish(env_steps=15)
        assert (run.env_steps, run.boundary_number) == (0, 0)


def test_live_objects_alone_need_no_values_at_finish(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(learner=Learner())
        run.boundary(env_steps=10)
        run.finish()

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


@pytest.mark.parametrize("verb", ["boundary", "finish"])
def test_nothing_is_possible_before_restore_and_after_the_end(tmp_path: Path, verb: str):
    def call(run: Run) -> None:
        run.boundary(env_steps=10) if verb == "boundary" else run.finish()

    message = rf"^{verb}: the run is not open; call restore first, and nothing after finish or close\.$"
    run = Run(tmp_path / "x")
    with pytest.raises(UsageError, match=message):
        call(run)
    run.restore()
    run.finish()
    with pytest.raises(UsageError, match=message):
        call(run)
    run.close()
    run.close()
