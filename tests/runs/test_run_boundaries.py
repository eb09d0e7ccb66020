"""`Run.boundary`: what is due is saved, what is forgotten is told, and a failed commit loses nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import CONFIG, Learner, Training, contents, names, rows, states

from perdure import CommitError, ContractError, Every, ForgottenValueError, Run, UsageError
from perdure.runs.directory import step_name
from perdure.store.filesystem import FileSystem

pytestmark = pytest.mark.usefixtures("global_generators")


def test_a_boundary_that_is_not_due_writes_nothing(tmp_path: Path):
    training = Training(tmp_path / "x", every=Every(updates=100)).restore()
    before = contents(tmp_path / "x")

    training.run.boundary(env_steps=10, observation=training.observation)

    assert contents(tmp_path / "x") == before
    training.stop()


@pytest.mark.parametrize("last", [80, 85])
def test_the_boundary_at_or_past_the_horizon_is_always_saved(tmp_path: Path, last: int):
    with Run(tmp_path / "x", config=CONFIG, horizon="total", every=Every(), background=False) as run:
        run.restore(x=0)
        assert run.horizon == 80
        run.boundary(env_steps=79, x=1)
        assert (run.is_finished, list(states(tmp_path / "x"))) == (False, [step_name(0)])
        run.boundary(env_steps=last, x=2)
        assert (run.is_finished, list(states(tmp_path / "x"))) == (True, [step_name(0), step_name(last)])
        run.finish()


def test_a_horizon_may_be_a_number(tmp_path: Path):
    with Run(tmp_path / "x", horizon=20, every=Every()) as run:
        run.restore(x=0)
        run.boundary(env_steps=20, x=1)

    assert step_name(20) in states(tmp_path / "x")


def test_a_horizon_that_is_a_number_is_part_of_the_contract(tmp_path: Path):
    with Run(tmp_path / "x", horizon=20) as run:
        run.restore(x=0)

    with pytest.raises(ContractError, match=r"horizon\.env_steps: 20 in the run, 30 here\."):
        Run(tmp_path / "x", horizon=30).restore(x=0)
    with pytest.raises(ContractError, match=r"horizon\.env_steps: 20 in the run, nothing here\."):
        Run(tmp_path / "x").restore(x=0)
    with Run(tmp_path / "x", horizon=20) as run:
        run.restore(x=0)


def test_a_value_forgotten_is_refused_and_the_boundary_can_be_repeated(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1), background=False) as run:
        run.restore(learner=Learner(), a=1, b=2)

        with pytest.raises(ForgottenValueError) as caught:
            run.boundary(env_steps=10, metrics={"m": 1})
        assert str(caught.value) == (
            "boundary: ['a', 'b'] were given to restore and are values: hand them in again (a=a, b=b)."
        )
        with pytest.raises(ForgottenValueError, match=r"\['b'\] were given to restore"):
            run.boundary(env_steps=10, a=1)
        with pytest.raises(ForgottenValueError) as unknown:
            run.boundary(env_steps=10, a=1, b=2, c=3)
        assert str(unknown.value) == "boundary: ['c'] were not given to restore; add them there first."

        assert (run.boundary_number, rows(tmp_path / "x"), list(states(tmp_path / "x"))) == (0, [], [step_name(0)])
        run.boundary(env_steps=10, a=1, b=2)
        assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


@pytest.mark.parametrize("history", [[], {}], ids=repr)
def test_an_empty_list_is_a_value_that_must_be_handed_in_again(tmp_path: Path, history: Any):
    """`history = [*history, x]` makes a new list; remembering the first one would save it, empty, for ever."""
    with Run(tmp_path / "x") as run:
        run.restore(history=history)

        with pytest.raises(ForgottenValueError, match=r"\['history'\] were given to restore"):
            run.boundary(env_steps=10)


def test_a_live_object_may_be_handed_in_again_and_replaces_the_first(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1)) as run:
        first, second = Learner(), Learner()
        run.restore(learner=first, x=1)
        second.weights = np.ones(2)
        run.boundary(env_steps=10, learner=second, x=2)
        first.weights = np.full(2, 7.0)
        run.boundary(env_steps=20, x=3)

    with Run(tmp_path / "x") as run:
        target = Learner()
        run.restore(learner=target, x=0)
        assert target.weights.tolist() == [1, 1]


@pytest.mark.parametrize("steps", [20, 19, 0])
def test_env_steps_must_grow(tmp_path: Path, steps: int):
    with Run(tmp_path / "x") as run:
        run.restore(x=1)
        run.boundary(env_steps=20, x=1)

        with pytest.raises(UsageError) as caught:
            run.boundary(env_steps=steps, x=1)

        assert str(caught.value) == (
            f"boundary 2: env_steps={steps}, updates=2 after env_steps=20, updates=1. Both count from the start of the "
            "run; env_steps grows at each boundary."
        )
        assert (run.env_steps, run.boundary_number) == (20, 1)


def test_updates_may_be_given_and_never_go_back(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=10)) as run:
        run.restore(x=1)
        run.boundary(env_steps=1, updates=9, x=1)
        run.boundary(env_steps=2, updates=9, x=1)
        run.boundary(env_steps=3, updates=12, x=1)
        assert (run.updates, run.boundary_number) == (12, 3)
        with pytest.raises(UsageError, match=r"^boundary 4: env_steps=4, updates=11 after env_steps=3, updates=12\."):
            run.boundary(env_steps=4, updates=11, x=1)

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(3)]


@pytest.mark.parametrize("steps", [10.0, "10", None, -1, True])
def test_counters_are_integers(tmp_path: Path, steps: Any):
    with Run(tmp_path / "x") as run:
        with pytest.raises(UsageError, match=r"^restore: env_steps=.*counters are ints"):
            run.restore(x=1, env_steps=steps)
        run.restore(x=1)
        with pytest.raises(UsageError, match=r"^boundary: env_steps=.*counters are ints"):
            run.boundary(env_steps=steps, x=1)


def test_metrics_make_rows_and_a_malformed_one_stops_the_boundary(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1), background=False) as run:
        run.restore(x=1)
        run.boundary(env_steps=10, x=1, metrics={"return": np.float32(0.5), "best": None})
        run.boundary(env_steps=20, x=1)
        with pytest.raises(UsageError, match="metric 'bad': a dict is no number"):
            run.boundary(env_steps=30, x=1, metrics={"bad": {}})

        assert run.metrics_rows() == [{"boundary": 1, "env_steps": 10, "updates": 1, "return": 0.5, "best": None}]
        assert (run.boundary_number, list(states(tmp_path / "x"))[-1]) == (2, step_name(20))


def test_a_commit_that_fails_is_told_and_the_next_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = Training(tmp_path / "x", background=False).restore().go(2)
    before = states(tmp_path / "x")

    def full(self: FileSystem, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "sync_file", full)
        training.update()
        with pytest.raises(CommitError, match=r"^checkpoint step_0000000030 was not committed: .*No space left"):
            training.boundary()
    assert states(tmp_path / "x") == before
    assert not [name for name in names(tmp_path / "x" / "checkpoints") if name.startswith(".")]

    training.go(1).stop()
    assert list(states(tmp_path / "x"))[-1] == step_name(40)


def wait_for_writer(training: "Training") -> None:
    """Until the commit in flight is done, whether or not it failed; its error stays to be raised."""
    job = training.run._opened("test").committer._writer._job
    if job is not None:
        job.exception()


@pytest.mark.parametrize("where", ["boundary", "finish", "close"])
def test_a_commit_that_fails_in_the_background_is_told_afterwards(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    """At the next boundary once it has failed, or where the run waits; a later boundary is saved again."""
    training = Training(tmp_path / "x").restore().go(2)
    wait_for_writer(training)
    before = states(tmp_path / "x")

    def full(self: FileSystem, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "sync_file", full)
        training.go(1)
        wait_for_writer(training)
    message = r"^checkpoint step_0000000030 was not committed: .*No space left"
    with pytest.raises(CommitError, match=message):
        {"boundary": training.boundary, "finish": training.run.finish, "close": training.run.close}[where]()

    assert states(tmp_path / "x") == before
    training.stop()
    Training(tmp_path / "x").restore().go(6).stop()
    assert states(tmp_path / "x") == states(straight)
