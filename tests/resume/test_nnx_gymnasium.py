"""Save at k, load, go on: the same as never stopped, for PPO with JAX in Gymnasium's vector environments."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.resume.comparing import stopped_at

import perdure
from perdure import ContractError

pytest.importorskip("gymnasium")

pytestmark = [pytest.mark.jax, pytest.mark.xdist_group("nnx_gymnasium")]

SCRIPT = Path(__file__).with_name("nnx_gymnasium.py")
ROOT = SCRIPT.parent.parent.parent
UPDATES = 8
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    **os.environ,
}
ENV_IDS = ("CartPole-v1", "Pendulum-v1")
FIRST = "env_states/envs/envs/0"
INNER = f"{FIRST}/env/env/env/env/env"
"""From NormalizeReward through RecordEpisodeStatistics, TimeLimit, OrderEnforcing and PassiveEnvChecker."""


@pytest.fixture(scope="module")
def straight_runs(tmp_path_factory: pytest.TempPathFactory, nnx_gymnasium: ModuleType) -> dict[str, Path]:
    """The runs that were never stopped, saved at every boundary; tests work on copies."""
    root = tmp_path_factory.mktemp("straight")
    for env_id in ENV_IDS:
        nnx_gymnasium.train(root / env_id, env_id=env_id)
    return {env_id: root / env_id for env_id in ENV_IDS}


@pytest.fixture(params=ENV_IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    """Discrete actions with both kinds of ends; continuous actions with truncations only."""
    return request.param


def same_runs(first: Path, second: Path, comparing: ModuleType) -> bool:
    assert comparing.differences(first, second) == []
    assert comparing.state_digests(first) == comparing.state_digests(second)
    return (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("k", range(1, UPDATES))
def test_a_run_resumed_from_k_equals_the_run_never_stopped(
    k: int,
    env_id: str,
    straight_runs: dict[str, Path],
    tmp_path: Path,
    comparing: ModuleType,
    nnx_gymnasium: ModuleType,
) -> None:
    """Every leaf and digest of every later boundary, and every metric row; environments and networks are fresh ones."""
    run = stopped_at(straight_runs[env_id], k, tmp_path / "run")

    result = nnx_gymnasium.train(run, env_id=env_id, networks_seed=100 + k)

    assert same_runs(straight_runs[env_id], run, comparing)
    assert (result.total_steps, result.total_iterations) == (UPDATES * nnx_gymnasium.STEPS_PER_UPDATE, UPDATES)


@pytest.mark.full
def test_the_training_reaches_what_its_twins_lose(
    env_id: str, straight_runs: dict[str, Path], comparing: ModuleType
) -> None:
    """Boundaries fall into episodes, and episodes of both ends were seen."""
    rows = perdure.Run(straight_runs[env_id]).metrics_rows()
    truncations = [row["rollout_batch/truncation_rate"] for row in rows]
    terminations = [row["rollout_batch/done_rate"] - row["rollout_batch/truncation_rate"] for row in rows]
    elapsed = [
        opened.snapshot.at(("env_states", "envs", "envs", 0, "env", "env", "_elapsed_steps"))
        for opened in comparing.checkpoints(straight_runs[env_id]).values()
    ]

    assert any(truncations)
    assert any(terminations) == (env_id == "CartPole-v1")
    assert len(set(elapsed)) > 3


TWINS = {
    "generator": f"{INNER}/_np_random",
    "elapsed-steps": f"{FIRST}/env/env/_elapsed_steps",
    "state": "networks/layers/0/mean",
    "reward-statistics": f"{FIRST}/return_rms",
    "observations": "networks/layers/0/mean",
    "environments": f"{INNER}/_np_random",
}
"""What goes wrong after the restore -> where the comparison must see it. A new episode hides a lost state."""


def test_every_reset_of_the_script_is_tried(nnx_gymnasium: ModuleType) -> None:
    """No twin is forgotten."""
    assert TWINS.keys() == nnx_gymnasium.RESETS.keys()


@pytest.mark.full
@pytest.mark.parametrize("what", TWINS)
def test_twin_a_part_that_is_reset_after_the_restore_is_found(
    what: str,
    env_id: str,
    straight_runs: dict[str, Path],
    tmp_path: Path,
    comparing: ModuleType,
    nnx_gymnasium: ModuleType,
) -> None:
    """Each part matters: the comparison names it, and the networks learn something else."""
    run = stopped_at(straight_runs[env_id], 3, tmp_path / "run")
    nnx_gymnasium.train(run, env_id=env_id, reset=what)

    found = comparing.differences(straight_runs[env_id], run)

    assert comparing.starting_with(found, TWINS[what]), found[:10]
    assert comparing.starting_with(found, "networks/layers/1/action/layers/0/kernel"), found[:10]
    assert not [line for line in found if line.startswith(("boundary 0", "boundary 1", "boundary 2", "boundary 3"))]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, nnx_gymnasium: ModuleType) -> Path:
    """A run with an evaluation after every update."""
    directory = tmp_path_factory.mktemp("evaluated") / "run"
    nnx_gymnasium.train(directory, evaluates=True)
    return directory


def without_evaluation(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("eval/")}


def test_evaluating_after_every_update_does_not_touch_the_training(
    straight_runs: dict[str, Path], evaluated: Path, comparing: ModuleType
) -> None:
    """Each state digest is that of the run without evaluation, and so is every metric but the evaluation's own."""
    straight = straight_runs["CartPole-v1"]
    rows = perdure.Run(evaluated).metrics_rows()

    assert comparing.state_digests(evaluated) == comparing.state_digests(straight)
    assert [without_evaluation(row) for row in rows] == perdure.Run(straight).metrics_rows()
    assert all(row["eval/lifespan_mean"] > 0 for row in rows)


def test_a_resumed_run_with_evaluation_equals_the_run_never_stopped(
    evaluated: Path, tmp_path: Path, comparing: ModuleType, nnx_gymnasium: ModuleType
) -> None:
    """Evaluations start from the same environments each time, so that none depends on those before it."""
    run = stopped_at(evaluated, 5, tmp_path / "run")

    nnx_gymnasium.train(run, networks_seed=105, evaluates=True)

    assert same_runs(evaluated, run, comparing)


def test_another_limit_of_episodes_is_refused(
    straight_runs: dict[str, Path], tmp_path: Path, nnx_gymnasium: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper's argument is compared, in the contract and at its place in the state."""
    run = stopped_at(straight_runs["CartPole-v1"], 3, tmp_path / "run")
    monkeypatch.setattr(nnx_gymnasium, "EPISODE_LIMIT", 15)

    with pytest.raises(
        ContractError, match=r"env_states/envs/envs/0/env/env/arguments/max_episode_steps: 14 in the run"
    ):
        nnx_gymnasium.train(run)


@pytest.mark.full
def test_a_second_process_that_resumes_from_4_equals_the_run_never_stopped(
    env_id: str, straight_runs: dict[str, Path], tmp_path: Path, comparing: ModuleType
) -> None:
    """Two processes, the first of which killed itself right after boundary 4, make the run of this one."""
    run = tmp_path / "run"
    command = [sys.executable, str(SCRIPT), str(run), "--env-id", env_id]
    killed = subprocess.run([*command, "--kill-at-boundary", "4"], env=ENVIRONMENT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(comparing.checkpoints(run)) == [0, 1, 2, 3, 4]

    subprocess.run([*command, "--networks-seed", "104"], env=ENVIRONMENT, check=True)

    assert same_runs(straight_runs[env_id], run, comparing)
