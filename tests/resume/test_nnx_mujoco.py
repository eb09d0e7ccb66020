"""Save at k, load, go on: the same as never stopped, for PPO on brax and MuJoCo Playground environments."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.resume.comparing import stopped_at

from perdure import ContractError

pytestmark = [pytest.mark.jax, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("nnx_mujoco.py")
ROOT = SCRIPT.parent.parent.parent
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    **os.environ,
}
NAMES = ["fast", "inverted_pendulum", "inverted_pendulum-mjx", "CartpoleBalance"]
UPDATES = 6
FORGETS_AT = 2
"""Where twins forget: three steps into an episode. After one step, `fast` may stand where it began: nothing to lose."""
POSITION = {
    "fast": "x/pos",
    "inverted_pendulum": "q",
    "inverted_pendulum-mjx": "qpos",
    "CartpoleBalance": "qpos",
}
"""Where each keeps a position."""

Straight = Callable[[str], Path]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, nnx_mujoco: ModuleType) -> Straight:
    """The run that was never stopped, by the environment's name; each is made once, and tests work on copies."""
    made: dict[str, Path] = {}

    def run_of(name: str) -> Path:
        if name not in made:
            directory = tmp_path_factory.mktemp("straight") / "run"
            nnx_mujoco.train(directory, name)
            made[name] = directory
        return made[name]

    return run_of


def is_exact(run: Path, straight: Path, comparing: ModuleType) -> bool:
    """Every leaf and digest of every boundary, and every byte of the metrics."""
    assert sorted(comparing.checkpoints(run)) == list(range(UPDATES + 1))
    assert comparing.differences(straight, run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight)
    return (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("k", [1, UPDATES // 2, UPDATES - 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_resumed_from_k_equals_the_run_never_stopped(
    name: str, k: int, straight: Straight, tmp_path: Path, comparing: ModuleType, nnx_mujoco: ModuleType
) -> None:
    """The objects were built from other seeds."""
    run = stopped_at(straight(name), k, tmp_path / "run")

    nnx_mujoco.train(run, name, networks_seed=100 + k)

    assert is_exact(run, straight(name), comparing)


@pytest.mark.parametrize("name", ["inverted_pendulum", "CartpoleBalance"])
def test_a_second_process_that_resumes_from_3_equals_the_run_never_stopped(
    name: str, straight: Straight, tmp_path: Path, comparing: ModuleType, nnx_mujoco: ModuleType
) -> None:
    """Nothing of the resume depends on what the first process compiled or loaded."""
    run = stopped_at(straight(name), 3, tmp_path / "run")

    command = [sys.executable, str(SCRIPT), str(run), "--env", name, "--networks-seed", "103"]
    subprocess.run(command, env=ENVIRONMENT, check=True)

    assert is_exact(run, straight(name), comparing)


@pytest.mark.parametrize("name", NAMES)
def test_the_training_reaches_what_its_twins_lose(
    name: str, straight: Straight, comparing: ModuleType, nnx_mujoco: ModuleType
) -> None:
    """Boundaries fall into episodes, which end in between, and the physics moves."""
    opened = comparing.checkpoints(straight(name))
    steps = [opened[boundary].snapshot.at(("env_states", "data", "steps")).value for boundary in sorted(opened)]
    path = ("env_states", "data", "physics", *POSITION[name].split("/"))
    positions = [opened[boundary].snapshot.at(path).value for boundary in sorted(opened)]

    assert all(((each >= 0) & (each < nnx_mujoco.EPISODE_LENGTH)).all() for each in steps)
    assert all(each.any() for each in steps[1:]), "no environment is in mid-episode"
    assert any((after < before).any() for before, after in itertools.pairwise(steps)), "none ended"
    assert (positions[FORGETS_AT] != positions[0]).any()


@pytest.mark.parametrize("what", ["steps", "physics"])
@pytest.mark.parametrize("name", NAMES)
def test_twin_a_part_of_the_environments_that_is_reset_after_the_restore_is_found(
    name: str, what: str, straight: Straight, tmp_path: Path, comparing: ModuleType, nnx_mujoco: ModuleType
) -> None:
    """The comparison names the part, and what was learned from it; what was saved before is untouched."""
    run = stopped_at(straight(name), FORGETS_AT, tmp_path / "run")
    nnx_mujoco.train(run, name, networks_seed=103, reset=what)

    found = comparing.differences(straight(name), run)

    assert comparing.starting_with(found, f"env_states/data/{what}"), found[:10]
    assert comparing.starting_with(found, "networks/layers/1/action/layers/0/kernel"), found[:10]
    assert not [line for line in found if line.startswith(tuple(f"boundary {n}:" for n in range(FORGETS_AT + 1)))]


def test_another_environment_is_refused(straight: Straight, tmp_path: Path, nnx_mujoco: ModuleType) -> None:
    """The contract tells environments apart that have the same spaces."""
    run = stopped_at(straight("inverted_pendulum"), 3, tmp_path / "run")

    with pytest.raises(ContractError, match=r"env\.backend: 'generalized' in the run, 'mjx' here"):
        nnx_mujoco.train(run, "inverted_pendulum-mjx")
