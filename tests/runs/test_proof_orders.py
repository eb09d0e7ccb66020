"""What `perdure prove` tells a run from outside besides where to stop: more checkpoints, and a component left fresh."""

import logging
from pathlib import Path

import numpy as np
import pytest
from tests.runs.toy_training import Training, checkpoint_names

from perdure import BoundaryReset, Every, Run, UsageError
from perdure.runs.chain import compare_chains, read_chain

pytestmark = pytest.mark.usefixtures("global_generators")

SELDOM = Every(minutes=1000)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a chain that was stopped after three updates."""
    monkeypatch.setenv("PERDURE_CHAIN", "1")
    Training(tmp_path / "x").restore().go(3).stop()
    return tmp_path / "x"


@pytest.mark.parametrize(("each", "saved"), [("1", [0, 10, 20, 30, 40]), ("2", [0, 20, 40])])
def test_more_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: str, saved: list[int]):
    monkeypatch.setenv("PERDURE_SAVE_EACH", each)
    Training(tmp_path / "x", every=SELDOM).restore().go(4).stop()

    assert checkpoint_names(tmp_path / "x") == [f"step_{steps:010d}" for steps in saved]


def test_not_where_checkpoints_reset_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("PERDURE_SAVE_EACH", "1")
    with caplog.at_level(logging.WARNING, logger="perdure"):
        Run(tmp_path / "x", boundary_reset=BoundaryReset(seed=1, every=Every(updates=3)))

    assert "x: PERDURE_SAVE_EACH=1 is ignored: boundary_reset has a cadence." in caplog.text


def test_what_is_no_interval_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_SAVE_EACH", "often")

    with pytest.raises(UsageError, match=r"^PERDURE_SAVE_EACH='often': a whole number from 1\.$"):
        Run(tmp_path / "x")


def test_a_component_that_is_left_as_a_fresh_start_has_it(stopped: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_LEAVE_FRESH", "x/learner")
    training = Training(stopped).restore()

    assert training.run.boundary_number == 3
    assert not training.learner.weights.any()
    assert not training.learner.momentum.any()
    assert training.observation.any()  # the others came back

    training.go(5).run.finish()
    Training(stopped.parent / "straight").restore().go(8).run.finish()
    found = compare_chains(read_chain(stopped.parent / "straight" / "chain.jsonl"), read_chain(stopped / "chain.jsonl"))
    assert found.difference is not None
    assert (found.difference.boundary, found.difference.components) == (4, ("learner",))


def test_a_component_that_is_a_value(stopped: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_LEAVE_FRESH", "x/observation")
    training = Training(stopped).restore()

    assert np.array_equal(training.observation, np.zeros(2))
    assert training.learner.weights.any()


def test_another_run_is_not_meant(stopped: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_LEAVE_FRESH", "y/learner")

    assert Training(stopped).restore().learner.weights.any()


def test_an_unknown_component_is_refused(stopped: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_LEAVE_FRESH", "x/lerner")

    with pytest.raises(UsageError, match=r"^PERDURE_LEAVE_FRESH='lerner': no such component; there are \['learner', "):
        Training(stopped).restore()
