"""Equal runs prove nothing unless one of them was resumed between its start and its end."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import UsageError
from perdure.proof.plan import Plan
from perdure.proof.prove import Proof
from perdure.proof.resumes import telling_resumes
from perdure.testing.exact_resume import InProcess


def cartpole() -> Any:
    return pytest.importorskip("gymnasium").make("CartPole-v1")


def train(directory: Path, *, horizon: int = 100, reset_every: int | None = None, anew: bool = False) -> None:
    if anew:
        shutil.rmtree(directory, ignore_errors=True)
    every = None if reset_every is None else perdure.Every(updates=reset_every)
    terms = None if every is None else perdure.BoundaryReset(seed=1, every=every)
    with perdure.Run(directory, horizon=horizon, boundary_reset=terms, background=False) as run:
        weights = run.restore(envs=np.random.default_rng(1) if terms is None else cartpole(), weights=np.ones(2)).weights
        while not run.is_finished:
            weights = weights * 1.1
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

    with pytest.raises(UsageError, match="the script began anew after the interruption. It opens its run with mode="):
        proof.run()


def test_a_script_that_is_never_killed_proves_nothing(tmp_path: Path):
    """A function in this process cannot be killed; a fast script is as lucky."""
    proof = Proof(InProcess(train), tmp_path, Plan(6, kill=True))

    with pytest.raises(UsageError, match=r"the script came to its end before it was killed. Give a smaller --at, or"):
        proof.run()
    assert telling_resumes(tmp_path / "interrupted") == ()
