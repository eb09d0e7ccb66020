"""Trainings of a task, and what their evaluations say."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.curves.tasks import Task
from perdure.nnx import train_ppo


@dataclass(frozen=True)
class Curve:
    """The evaluations of one training."""

    networks: str
    """What its networks are called."""
    seed: int
    """Of networks and training."""
    points: Sequence[tuple[int, float]]
    """Env-steps and mean return, in order."""

    def reached_at(self, threshold: float) -> int | None:
        """Env-steps at the first evaluation that reaches the threshold."""
        return next((step for step, value in self.points if value >= threshold), None)

    def fallen_below(self, threshold: float) -> tuple[int, int]:
        """Of the evaluations after that one: how many are below the threshold, and how many there are."""
        reached = self.reached_at(threshold)
        after = [value for step, value in self.points if reached is not None and step > reached]
        return sum(value < threshold for value in after), len(after)

    @property
    def final(self) -> float:
        """The last evaluation's mean return."""
        return self.points[-1][1]


def train(task: Task, networks: str, seed: int) -> Curve:
    """One training."""
    config = dataclasses.replace(task.config, seed=seed)
    result = train_ppo(task.env, task.networks[networks](seed), config, eval_env=task.eval_env)
    points = [(entry["step"], entry["episode_reward_mean"]) for entry in result.eval_history]
    return Curve(networks, seed, points)
