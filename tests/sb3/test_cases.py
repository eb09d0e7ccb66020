"""Faults that users of Stable-Baselines3 reported, by their numbers in the list of cases."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]


def test_case_1_no_episodes_twice_wherever_it_was_stopped(trainings: ModuleType, tmp_path: Path):
    """The seed is not applied anew (#1643, #326): after every boundary, and three times in one training."""
    total = 192
    straight = trainings.photograph(trainings.train(trainings.a2c, tmp_path / "straight", total))
    for stops in ((1,), (2,), (3,), (4,), (5,), (1, 2, 5)):
        for stop in stops:
            trainings.train(trainings.a2c, tmp_path / f"{stops}", total, stop=stop)
        resumed = trainings.photograph(trainings.train(trainings.a2c, tmp_path / f"{stops}", total))
        assert [part for part in straight if straight[part] != resumed[part]] == [], stops


class Watching(BaseCallback):
    """Notes what each step was taken with."""

    noted: list[tuple[int, float, float]]

    def __init__(self) -> None:
        super().__init__()
        self.noted = []

    def _on_step(self) -> bool:
        rate = self.model.policy.optimizer.param_groups[0]["lr"]
        self.noted.append((self.num_timesteps, vars(self.model).get("exploration_rate", 0.0), rate))
        return True


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_case_5_exploration_and_schedules_go_on(name: str, trainings: ModuleType, tmp_path: Path):
    """ε does not begin at 1 again, and the learning rate falls on as it fell (#1629)."""
    make, total, last = trainings.CASES[name]
    watching = [Watching(), Watching()]
    trainings.train(make, tmp_path / "run", total, stop=last, callbacks=lambda: [watching[0]])
    trainings.train(make, tmp_path / "run", total, callbacks=lambda: [watching[1]])

    # What the first process noted is state of the callback. Before its first step a DQN has no rate yet.
    steps, explored, rates = (np.array(column)[1:] for column in zip(*watching[1].noted, strict=True))
    assert steps.tolist() == list(range(4, watching[1].num_timesteps + 1, 2))  # two environments, and no step twice
    assert (np.diff(explored) <= 0).all()
    assert (np.diff(rates) <= 0).all()
    assert rates[-1] < rates[0] / 10
    if name == "dqn":
        assert np.allclose(np.diff(explored), -0.95 * 2 / total)


@pytest.mark.parametrize("name", ["a2c", "dqn"])
def test_case_8_the_last_observation_is_that_of_the_environments(name: str, trainings: ModuleType, tmp_path: Path):
    """Both come back, in mid-episode (#597)."""
    seen: list[tuple[Any, Any]] = []

    class Looking(BaseCallback):
        def _on_rollout_start(self) -> None:
            states = self.training_env.get_attr("state")
            seen.append((np.array(self.model._last_obs), np.array(states, np.float32)))

        def _on_step(self) -> bool:
            return True

    make = getattr(trainings, name)
    trainings.train(make, tmp_path / "run", 320, stop=5, callbacks=lambda: [Looking()])
    before = len(seen)
    trainings.train(make, tmp_path / "run", 320, callbacks=lambda: [Looking()])

    assert len(seen) > before >= 5
    for observation, state in seen:
        assert (observation == state).all()
