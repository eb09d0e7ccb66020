"""Equal runs prove nothing unless one of them was resumed between its start and its end."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.cli.proof_report import document, print_verdict
from perdure.errors import UsageError
from perdure.proof.evidence import Parting
from perdure.proof.plan import Plan
from perdure.proof.prove import Proof
from perdure.proof.resumes import telling_resumes
from perdure.testing.exact_resume import InProcess


def cartpole() -> Any:
    return pytest.importorskip("gymnasium").make("CartPole-v1")


def train(directory: Path, *, reset_every: int | None = None, anew: bool = False, by: float = 1.1) -> None:
    if anew:
        shutil.rmtree(directory, ignore_errors=True)
    terms = None if reset_every is None else perdure.BoundaryReset(seed=1, every=perdure.Every(updates=reset_every))
    envs = np.random.default_rng(1) if terms is None else cartpole()
    with perdure.Run(directory, horizon=100, boundary_reset=terms, background=False) as run:
        weights = run.restore(envs=envs, weights=np.ones(2)).weights
        while not run.is_finished:
            weights = weights * by
            run.boundary(env_steps=run.env_steps + 1, weights=weights)
        run.finish()


def test_a_resume_between_start_and_end_is_told(tmp_path: Path):
    verdict = Proof(InProcess(train), tmp_path, Plan(6, every=True)).run()

    assert (verdict.is_exact, verdict.stops, verdict.resumes) == (True, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5))


def test_checkpoints_on_a_cadence_of_their_own(tmp_path: Path):
    verdict = Proof(InProcess(lambda at: train(at, reset_every=3)), tmp_path, Plan(6, at=5)).run()

    assert (verdict.is_exact, verdict.stops, verdict.resumes) == (True, (5,), (3,))


def test_a_resume_at_the_start_proves_nothing(tmp_path: Path):
    proof = Proof(InProcess(lambda directory: train(directory, reset_every=3)), tmp_path, Plan(6, at=2))

    with pytest.raises(UsageError, match="none was resumed, so that nothing is proven: ") as caught:
        proof.run()
    assert str(caught.value).endswith(
        "the script went on from boundary 0, where its last checkpoint stood (boundary_reset); others stand at 3: "
        "--at 3."
    )


def test_a_cadence_that_is_longer_than_the_proof(tmp_path: Path):
    proof = Proof(InProcess(lambda directory: train(directory, reset_every=50)), tmp_path, Plan(6))

    with pytest.raises(UsageError, match="there is none before the end, so go further, with --until and --at"):
        proof.run()


def test_a_script_that_begins_anew_proves_nothing(tmp_path: Path):
    proof = Proof(InProcess(lambda directory: train(directory, anew=True)), tmp_path, Plan(6))

    with pytest.raises(UsageError, match=r"the script began anew after the interruption\. It opens its run with mode="):
        proof.run()


def test_a_script_that_is_never_killed_proves_nothing(tmp_path: Path):
    """A function in this process cannot be killed; a fast script is as lucky."""
    proof = Proof(InProcess(train), tmp_path, Plan(6, kill=True))

    with pytest.raises(UsageError, match=r"the script came to its end before it was killed. Give a smaller --at, or"):
        proof.run()
    assert telling_resumes(tmp_path / "interrupted") == ()


@pytest.mark.parametrize("lucky", [2, 3])
def test_straight_runs_that_are_equal_by_luck_do_not_blame_the_resume(tmp_path: Path, lucky: int):
    """A difference before the resume is none of the resume's; else the same runs are made again, and differ."""
    calls: list[Path] = []

    def lucky_at_first(directory: Path) -> None:
        calls.append(directory)
        train(directory, by=1.1 if len(calls) <= lucky else 1.1 + len(calls))

    verdict = Proof(InProcess(lucky_at_first), tmp_path, Plan(4)).run()

    assert (verdict.is_exact, verdict.is_deterministic) == (False, False)
    again = [] if lucky == 2 else ["straight_there", "interrupted_there", "interrupted_there"]
    assert [path.parent.name for path in calls[4:]] == [*again, "straight_leaf", "again_leaf"]


@pytest.mark.parametrize("at_the_leaf", ["equal", "equal_even_at_the_end"])
def test_runs_for_the_leaf_that_are_equal_by_luck(tmp_path: Path, capsys: pytest.CaptureFixture[str], at_the_leaf: str):
    """The two that parted have a checkpoint of their end, where the leaf is found unless they met again."""
    calls: list[Path] = []

    def differs_once(directory: Path) -> None:
        calls.append(directory)
        with perdure.Run(directory, horizon=100, background=False) as run:
            weights = run.restore(weights=np.ones(2)).weights
            while not run.is_finished:
                is_met = at_the_leaf != "equal" and run.boundary_number == 3
                weights = np.ones(2) if is_met else weights * (1.1 if len(calls) != 2 else 1.2)
                run.boundary(env_steps=run.env_steps + 1, weights=weights)
            run.finish()

    verdict = Proof(InProcess(differs_once), tmp_path, Plan(4)).run()
    print_verdict(verdict, (4, 1.0), None)

    assert [path.parent.name for path in calls] == ["straight", "again", "straight_leaf", "again_leaf"]
    assert verdict.located is not None
    shown = capsys.readouterr().out
    assert "parts        first differs at boundary 1: weights" in shown
    if at_the_leaf == "equal":
        assert (verdict.located.boundary, len(verdict.located.leaves)) == (4, 1)
        assert "(one | the other; at boundary 4, for the runs made again for it were equal)" in shown
        assert document(verdict, None, (4, 1.0), None)["leaves_at"] == 4
    else:
        assert not verdict.located.leaves
        assert "first leaf   not found: the runs made again for it were equal" in shown


def test_twin_a_resume_that_is_always_as_wrong_is_blamed(tmp_path: Path):
    def wrong(directory: Path) -> None:
        train(directory, by=1.2 if (directory / "run.json").exists() else 1.1)

    verdict = Proof(InProcess(wrong), tmp_path, Plan(4)).run()

    assert (verdict.is_exact, verdict.is_deterministic, verdict.stops) == (False, True, (2,))


def test_a_loop_that_counts_anew(tmp_path: Path):
    def forgetful(directory: Path) -> None:
        run = perdure.Run(directory)
        weights = run.restore(weights=np.ones(2)).weights
        for _ in range(3):
            run.boundary(env_steps=run.env_steps + 1, weights=weights)
        run.finish(env_steps=run.env_steps, weights=weights)

    verdict = Proof(InProcess(forgetful), tmp_path, Plan(8, at=2)).run()

    assert isinstance(verdict.outcome, Parting)
    assert verdict.outcome.what == "one ends at boundary 3, the other at 5"
    assert "a count that begins anew in each process" in verdict.causes[0]
    assert not any("metric" in said for said in verdict.causes)


def test_a_directory_of_another_name_each_time(tmp_path: Path):
    calls: list[Path] = []

    def stamped(directory: Path) -> None:
        calls.append(directory)
        train(directory.with_name(f"x-{len(calls)}"))

    verdict = Proof(InProcess(stamped), tmp_path, Plan(4)).run()

    assert isinstance(verdict.outcome, Parting)
    assert verdict.outcome.what == "only one of the two opened this run"
    assert verdict.causes[0].startswith("The run's directory has another name in each process")
    assert not any("metric is not" in said for said in verdict.causes)
