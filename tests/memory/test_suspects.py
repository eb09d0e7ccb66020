"""`run.audit()` tells what changes in this process and is in no checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure import UsageError
from perdure.contract.sections import AUDIT
from perdure.runs.record import read_record

pytestmark = pytest.mark.full  # it looks at every module of the tests


class Agent:
    def __init__(self) -> None:
        self.weights, self.lr_cached, self.name = np.zeros(2), 0.5, "agent"

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


def train(directory: Path, **options: Any) -> list[list[str]]:
    """What three calls told."""
    agent, observation, eps, constant, told = Agent(), np.zeros(2), 1.0, 7, []
    run = perdure.Run(directory, **options)
    observation = run.restore(agent=agent, observation=observation).observation
    for step in (1, 2, 3):
        agent.weights = agent.weights + 1
        agent.lr_cached *= 0.9
        observation = observation + 1.0
        eps *= 0.5
        run.boundary(env_steps=step, observation=observation)
        told.append([each.place for each in run.audit()])
    assert constant == 7
    run.close()
    return told


def test_what_changes_between_calls_and_is_in_no_checkpoint(tmp_path: Path):
    first, second, third = train(tmp_path / "x")

    assert first == []
    assert second == third == ["component agent.lr_cached", "frame train: eps", "frame train: told"]


def test_what_is_to_be_left_alone_is_kept_in_the_contract_and_no_resume_trips_over_it(tmp_path: Path):
    told = train(tmp_path / "x", audit_ignore={"frame train: eps": "an experiment"})

    assert told[-1] == ["component agent.lr_cached", "frame train: told"]
    assert read_record(tmp_path / "x" / "run.json").contract[AUDIT] == {"frame train: eps": "an experiment"}
    run = perdure.Run(tmp_path / "x")
    run.restore(agent=Agent(), observation=np.zeros(2))
    run.close()


@pytest.mark.parametrize("value", [["frame main: eps"], {"frame main: eps": ""}, {"frame main: eps": None}, "all"])
def test_a_reason_must_be_given(tmp_path: Path, value: Any):
    with pytest.raises(UsageError, match=r"^audit_ignore=.*: places and the reason for each, such as \{"):
        perdure.Run(tmp_path / "x", audit_ignore=value)


def test_an_audit_wants_an_open_run(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^audit: the run is not open"):
        perdure.Run(tmp_path / "x").audit()
