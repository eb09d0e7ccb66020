"""Save at k, load, go on: the same as never stopped, for PPO with PyTorch in every kind of training that it knows."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.resume.comparing import stopped_at

import perdure

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

pytestmark = pytest.mark.xdist_group("torch_ppo")

SCRIPT = Path(__file__).with_name("torch_ppo.py")
CASES = (
    "cartpole",
    "pendulum",
    "next-step",
    "disabled",
    "async",
    "masks",
    "masks-next-step",
    "masks-several",
    "lstm",
    "lstm-next-step",
    "clipped",
)
UPDATES = 8


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, torch_ppo: ModuleType) -> Any:
    """The run of a case that was never stopped, saved at every boundary; tests work on copies."""
    root, made = tmp_path_factory.mktemp("straight"), {}

    def run_of(case: str) -> Path:
        if case not in made:
            made[case] = root / case
            torch_ppo.train_case(made[case], case)
        return made[case]

    return run_of


def quick_only(quick: str, names: Iterable[str]) -> list[Any]:
    """All names as parameters, of which one is tried in the quick tests too."""
    return [name if name == quick else pytest.param(name, marks=pytest.mark.full) for name in names]


def same_runs(first: Path, second: Path, comparing: ModuleType) -> bool:
    assert comparing.differences(first, second) == []
    assert comparing.state_digests(first) == comparing.state_digests(second)
    return (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()


def test_every_case_of_the_script_is_tried(torch_ppo: ModuleType) -> None:
    assert torch_ppo.CASES.keys() == set(CASES)
    assert torch_ppo.UPDATES == UPDATES


@pytest.mark.parametrize("case", quick_only("lstm", CASES))
def test_a_run_resumed_from_any_boundary_equals_the_run_never_stopped(
    case: str, straight: Any, tmp_path: Path, comparing: ModuleType, torch_ppo: ModuleType
) -> None:
    """Every leaf and digest of every later boundary, and every metric row; all objects are fresh ones."""
    for k in range(1, UPDATES) if case in ("cartpole", "next-step") else (2, 5):
        run = stopped_at(straight(case), k, tmp_path / f"{k}")

        result = torch_ppo.train_case(run, case)

        assert same_runs(straight(case), run, comparing)
        assert result.total_steps == UPDATES * torch_ppo.TINY.steps_per_update


@pytest.mark.full
def test_the_same_is_learned_in_processes_and_whoever_resets_the_environments(straight: Any) -> None:
    """In other processes as in this one; and in the same step, by the environments as by the trainer."""

    def learned(case: str) -> list[dict[str, Any]]:
        return perdure.Run(straight(case)).metrics_rows()

    assert learned("async") == learned("next-step")
    assert learned("disabled") == learned("cartpole") != learned("next-step")


@pytest.mark.full
def test_the_trainings_reach_what_their_twins_lose(straight: Any, comparing: ModuleType) -> None:
    """Boundaries fall into episodes and behind their ends, with resets that are due."""

    def carried(case: str, name: str) -> list[list[Any]]:
        opened = comparing.checkpoints(straight(case)).values()
        return [perdure.read(straight(case) / "checkpoints" / each.name)["carried"][name].tolist() for each in opened]

    assert any(map(any, carried("next-step", "resets")[1:]))
    assert any(map(any, carried("next-step", "starts")[1:]))
    assert any(map(any, carried("lstm", "starts")[1:]))
    assert any(map(any, carried("lstm-next-step", "starts")[1:]))
    assert not any(map(any, carried("cartpole", "resets")))
    assert all(max(lengths) > 0 for lengths in carried("cartpole", "lengths")[1:])


TWINS = {
    "env-generator": ("cartpole", "envs/envs/0"),
    "elapsed-steps": ("pendulum", "envs/envs/0"),
    "environments": ("cartpole", "envs/envs/0"),
    "observation": ("cartpole", "networks"),
    "action-mask": ("masks", "networks"),
    "memory": ("lstm", "networks"),
    "starts": ("lstm", "networks"),
    "resets": ("next-step", "networks"),
    "returns": ("pendulum", "carried/returns"),
    "lengths": ("pendulum", "carried/lengths"),
    "moments": ("cartpole", "networks"),
    "optimizer-steps": ("cartpole", "networks"),
    "weights": ("cartpole", "networks"),
    "action-rng": ("cartpole", "networks"),
    "shuffle-rng": ("cartpole", "networks"),
}
"""What goes wrong after the restore -> in which case, and where the comparison must see it."""


def test_every_reset_of_the_script_is_tried(torch_ppo: ModuleType) -> None:
    assert TWINS.keys() == torch_ppo.RESETS.keys()


@pytest.mark.parametrize("what", quick_only("memory", TWINS))
def test_twin_a_part_that_is_reset_after_the_restore_is_found(
    what: str, straight: Any, tmp_path: Path, comparing: ModuleType, torch_ppo: ModuleType
) -> None:
    """Each part matters: the comparison names it at the next boundary."""
    case, place = TWINS[what]
    run = stopped_at(straight(case), 3, tmp_path / "run")
    try:
        torch_ppo.train_case(run, case, reset=what)
    except AssertionError as error:  # a wrong mask lets the policy do what the environment refuses
        assert what == "action-mask" and "an illegal move" in str(error)  # noqa: PT017, PT018
        return

    found = comparing.differences(straight(case), run)

    assert comparing.starting_with(found, place), found[:10]
    assert not [line for line in found if line.startswith(("boundary 0", "boundary 1", "boundary 2", "boundary 3"))]


def without_evaluation(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("eval/")}


@pytest.mark.full
@pytest.mark.parametrize("case", ["cartpole", "masks", "lstm"])
def test_evaluating_after_every_update_does_not_touch_the_training(
    case: str, straight: Any, tmp_path: Path, comparing: ModuleType, torch_ppo: ModuleType
) -> None:
    """State digests and metrics are those of the run without evaluation; and it is resumed exactly."""
    options = {"eval_every_steps": torch_ppo.TINY.steps_per_update, "eval_episodes": 3}
    torch_ppo.train_case(tmp_path / "evaluated", case, **options)
    resumed = stopped_at(tmp_path / "evaluated", 4, tmp_path / "resumed")
    torch_ppo.train_case(resumed, case, **options)
    rows = perdure.Run(tmp_path / "evaluated").metrics_rows()

    assert comparing.state_digests(tmp_path / "evaluated") == comparing.state_digests(straight(case))
    assert [without_evaluation(row) for row in rows] == perdure.Run(straight(case)).metrics_rows()
    assert all(row["eval/length_mean"] > 0 for row in rows)
    assert same_runs(tmp_path / "evaluated", resumed, comparing)


@pytest.mark.full
@pytest.mark.parametrize("case", ["pendulum", "next-step", "lstm"])
def test_a_second_process_that_resumes_from_4_equals_the_run_never_stopped(
    case: str, straight: Any, tmp_path: Path, comparing: ModuleType
) -> None:
    """Two processes, the first of which killed itself right after boundary 4, make the run of this one."""
    run = tmp_path / "run"
    command = [sys.executable, str(SCRIPT), str(run), "--case", case]
    killed = subprocess.run([*command, "--kill-at-boundary", "4"], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(comparing.checkpoints(run)) == [0, 1, 2, 3, 4]

    subprocess.run(command, env=os.environ, check=True)

    assert same_runs(straight(case), run, comparing)
