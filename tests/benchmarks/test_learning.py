"""One seed of each task is learned within its budget; without memory, `RecallCue` is not."""

import pytest
from benchmarks.curves.tasks import TASKS
from benchmarks.curves.training import Curve, train

pytestmark = pytest.mark.jax

CURVE = Curve("MLP", 1, [(10, 0.1), (20, 0.9), (30, 0.7), (40, 1.0)])


def test_a_curve_says_when_it_reached_the_threshold_and_how_often_it_fell_below():
    assert (CURVE.reached_at(0.9), CURVE.fallen_below(0.9), CURVE.final) == (20, (1, 2), 1.0)
    assert (CURVE.reached_at(2.0), CURVE.fallen_below(2.0)) == (None, (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "networks"), [("cartpole", "MLP"), ("pendulum", "MLP"), ("recall-cue", "LSTM")])
def test_a_task_is_learned_within_its_budget(name: str, networks: str):
    task = TASKS[name]()

    curve = train(task, networks, seed=11)

    reached = curve.reached_at(task.threshold)
    assert reached is not None, curve.points
    assert reached <= task.budget
    assert curve.points[-1][0] <= task.budget


@pytest.mark.slow
def test_twin_without_memory_nobody_recalls():
    """Else the task would not need the LSTM, or its evaluation would flatter."""
    task = TASKS["recall-cue"]()

    assert max(value for _, value in train(task, "MLP", seed=11).points) < 0.5
