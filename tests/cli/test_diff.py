"""`perdure diff` says bit-identical exactly if it is, and otherwise where the first differences are."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import perdure

STEP_0 = "step_0000000000"


@pytest.fixture
def twin_path(toy: ModuleType, run_path: Path) -> Path:
    """The same training as `run_path`, in a run of its own."""
    toy.train(run_path.parent / "twin", stop_after=3)
    return run_path.parent / "twin"


def test_two_runs_of_one_seed_are_identical(perdure_cli, run_path: Path, twin_path: Path):
    result = perdure_cli("diff", run_path, twin_path)

    assert (result.code, result.err) == (0, "")
    assert re.search(r"state    bit-identical: \d\d leaves in 4 components\n", result.out)
    assert "metrics  identical: 3 rows" in result.out


def test_two_runs_of_two_seeds_differ(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path.parent / "other", stop_after=3, seed=2)
    result = perdure_cli("diff", run_path, run_path.parent / "other")

    assert result.code == 1
    assert re.search(r"state    \d+ differences; A holds \d\d leaves\n", result.out)
    assert "  weights: float64 2×3 [0] = " in result.out
    assert "metrics  3 rows of 3 differ" in result.out
    assert "  metrics/1/mean: " in result.out


def test_a_resumed_run_is_identical_to_a_straight_one(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path)
    toy.train(run_path.parent / "straight")

    assert perdure_cli("diff", run_path, run_path.parent / "straight").code == 0


@pytest.mark.parametrize(
    ("action", "hint"), [(0, "  all in generators of spaces"), (1, "of them in generators of spaces")]
)
def test_generators_of_spaces_that_nobody_seeded_are_told(perdure_cli, tmp_path: Path, action: int, hint: str):
    """Two starts of one seed differ in them, and the trainings are the same."""
    for name in ("a", "b"):
        start_cartpole(tmp_path / name, action=action if name == "b" else 0)
    result = perdure_cli("diff", tmp_path / "a" / "checkpoints" / STEP_0, tmp_path / "b" / "checkpoints" / STEP_0)

    assert result.code == 1
    assert hint in result.out
    assert "perdure.gym.seed_spaces(envs, seed) seeds them" in result.out


def test_seeded_spaces_are_identical_and_those_that_went_apart_are_no_matter_of_seeds(perdure_cli, tmp_path: Path):
    for name, draws in (("a", 0), ("b", 0), ("c", 1)):
        start_cartpole(tmp_path / name, seed=3, draws=draws)
    a, b, c = (tmp_path / name / "checkpoints" / STEP_0 for name in "abc")

    assert perdure_cli("diff", a, b).code == 0
    assert perdure_cli("diff", a, c).code == 1
    assert "seed_spaces" not in perdure_cli("diff", a, c).out


def start_cartpole(directory: Path, *, action: int = 0, seed: int | None = None, draws: int = 0) -> None:
    """A run's first checkpoint, after one step; `seed` is that of the generators of spaces."""
    gymnasium = pytest.importorskip("gymnasium")
    from perdure.gym import seed_spaces

    env = gymnasium.make("CartPole-v1")
    env.reset(seed=1)
    env.step(action)
    if seed is None:
        env.action_space.seed()
    else:
        seed_spaces(env, seed)
    for _ in range(draws):
        env.action_space.sample()
    with perdure.Run(directory) as run:
        run.restore(env=env)


def test_checkpoints_of_different_steps(perdure_cli, step):
    result = perdure_cli("diff", step(20), step(30))

    assert result.code == 1
    assert "  env_steps: 20 | 30\n" in result.out
    assert "metrics" not in result.out


def test_a_run_stands_for_its_newest_checkpoint(perdure_cli, run_path: Path, step):
    assert perdure_cli("diff", run_path, step(30)).code == 0
    assert perdure_cli("diff", step(20), run_path).code == 1


def test_rows_behind_the_checkpoint_are_not_compared(perdure_cli, run_path: Path, twin_path: Path):
    with (twin_path / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"boundary":4}\n')

    assert perdure_cli("diff", run_path, twin_path).code == 0


def test_equal_states_with_unequal_metrics_differ(perdure_cli, toy: ModuleType, tmp_path: Path):
    for name, loss in (("a", 0.0), ("b", -0.0)):
        with perdure.Run(tmp_path / name, every=perdure.Every(updates=1)) as run:
            toy.random.seed(1)
            np.random.seed(1)
            run.restore(x=1)
            run.boundary(env_steps=1, x=2, metrics={"loss": loss})
            run.boundary(env_steps=2, x=2, metrics={"loss": 1.0})
    result = perdure_cli("diff", tmp_path / "a", tmp_path / "b")

    assert result.code == 1
    assert "state    bit-identical" in result.out
    assert "metrics  1 row of 2 differ\n  metrics/1/loss: 0.0 | {" in result.out


def test_long_lists_are_cut_unless_all_are_wanted(perdure_cli, tmp_path: Path):
    for name, start in (("a", 0), ("b", 1)):
        perdure.save(tmp_path / name, numbers=list(range(start, 30 + start)))
    short = perdure_cli("diff", tmp_path / "a", tmp_path / "b")
    long = perdure_cli("diff", tmp_path / "a", tmp_path / "b", "--all")

    assert short.code == long.code == 1
    assert short.out.endswith("  numbers/19: 19 | 20\n  … and 10 more; --all lists them\n")
    assert long.out.endswith("  numbers/29: 29 | 30\n")


def test_json(perdure_cli, run_path: Path, twin_path: Path, step):
    same = json.loads(perdure_cli("diff", run_path, twin_path, "--json").out)
    other = json.loads(perdure_cli("diff", step(20), step(30), "--json").out)

    assert same["identical"] is True
    assert same["first"]["state_digest"] == same["second"]["state_digest"]
    assert same["state"].pop("leaves") > 10
    assert same["state"] == {"identical": True, "difference_count": 0, "differences": []}
    assert (same["metrics"]["identical"], same["metrics"]["rows"]) == (True, [3, 3])
    assert (other["identical"], other["metrics"]) == (False, None)
    assert other["state"]["differences"][0] == {"path": "env_steps", "first": "20", "second": "30"}


@pytest.mark.parametrize("at", [0, 1])
def test_a_damaged_checkpoint_is_never_called_identical(
    perdure_cli, run_path: Path, twin_path: Path, flip: Callable, at
):
    damaged = (run_path, twin_path)[at] / "checkpoints" / "step_0000000030"
    flip(damaged / "weights.safetensors")
    result = perdure_cli("diff", run_path, twin_path)

    assert (result.code, result.out) == (4, "")
    assert result.err.startswith("perdure: step_0000000030/weights")


def test_altered_metrics_are_never_called_identical(perdure_cli, run_path: Path, twin_path: Path):
    data = (twin_path / "metrics.jsonl").read_bytes()
    (twin_path / "metrics.jsonl").write_bytes(data[:-20])
    result = perdure_cli("diff", run_path, twin_path)

    assert (result.code, result.out) == (4, "")
    assert "metrics.jsonl: its first" in result.err


def test_a_run_without_checkpoints(perdure_cli, run_path: Path, twin_path: Path):
    shutil.rmtree(twin_path / "checkpoints")
    result = perdure_cli("diff", run_path, twin_path)

    assert result.code == 4
    assert result.err.endswith("twin: the run has no checkpoint; it was stopped before the first was committed.\n")
