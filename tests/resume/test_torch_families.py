"""Save at k, kill, resume: the same as never stopped, for PPO with PyTorch on every family of environments."""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.resume.comparing import checkpoints, differences, state_digests, stopped_at

import perdure

for needed in ("gymnasium", "torch", "mujoco", "ale_py", "Box2D", "minigrid"):
    pytest.importorskip(needed)

families: ModuleType = importlib.import_module("tests.resume.torch_families")

pytestmark = [
    pytest.mark.full,
    # A fork of a process that other tests made JAX start threads in: these workers use none of them.
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

ROOT = Path(__file__).parents[2]


def marked(name: str, family: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if families.FAMILIES[family].is_slow else name


NAMES = [marked(name, name) for name in families.FAMILIES]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a family that was never stopped, saved at every boundary; tests work on copies."""
    root = tmp_path_factory.mktemp("straight")

    def run_of(name: str) -> Path:
        if not (root / name).exists():
            families.train_family(root / name, name)
        return root / name

    return run_of


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, straight: Callable[[str], Path]) -> Callable[[str], Path]:
    """Runs of a family that other processes stopped or went on with: `killed`, and copies stopped after each boundary.

    All families that are tried together are tried in two processes: one is killed in them, one goes on in them.
    """
    made: dict[bool, Path] = {}

    def runs_of(name: str) -> Path:
        is_slow = families.FAMILIES[name].is_slow
        if is_slow not in made:
            made[is_slow] = _stopped_and_resumed(tmp_path_factory.mktemp("elsewhere"), straight, is_slow=is_slow)
        return made[is_slow] / name

    return runs_of


def _stopped_and_resumed(root: Path, straight: Callable[[str], Path], *, is_slow: bool) -> Path:
    names = [name for name, family in families.FAMILIES.items() if family.is_slow == is_slow]
    for name in names:
        for boundary in families.FAMILIES[name].stops:
            stopped_at(straight(name), boundary, root / name / str(boundary))
    for verb in ("kill", "resume"):
        command = [sys.executable, "-m", "tests.resume.torch_elsewhere", verb, str(root), *names]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}, check=True)
    return root


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_another_process_resumes_from_any_boundary_equals_the_run_never_stopped(
    name: str, straight: Callable[[str], Path], elsewhere: Callable[[str], Path]
):
    """Every leaf and digest of every boundary, and every metric row; the run that was killed, and each that was stopped
    after a boundary."""
    runs = elsewhere(name)
    codes = {verb: json.loads((runs.parent / f"{verb}.json").read_text())[name] for verb in ("kill", "resume")}

    assert codes == {"kill": -signal.SIGKILL, "resume": 0}
    stops = families.FAMILIES[name].stops
    assert {run.name for run in runs.iterdir()} == {"killed", *map(str, stops)}
    for run in runs.iterdir():
        assert differences(straight(name), run) == [], run.name
        assert state_digests(straight(name)) == state_digests(run), run.name
        assert (straight(name) / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes(), run.name


def carried(run: Path) -> list[dict[str, Any]]:
    """What each boundary hands on."""
    opened = checkpoints(run)
    return [perdure.read(run / "checkpoints" / opened[at].name)["carried"] for at in sorted(opened)]


@pytest.mark.parametrize("name", NAMES)
def test_the_trainings_are_stopped_in_mid_episode_and_with_a_reset_pending(name: str, straight: Callable[[str], Path]):
    """And episodes end in the rollouts behind the last stop too."""
    family, boundaries = families.FAMILIES[name], carried(straight(name))
    ended = "resets" if family.config.autoreset == "next-step" else "starts"
    stops = [boundaries[at] for at in family.stops]
    rows = perdure.Run(straight(name)).metrics_rows()

    assert any(each[ended].any() for each in stops)
    assert any((each["lengths"] > 0).any() for each in stops)
    assert sum(row["rollout/episodes"] for row in rows[family.stops[-1] :]) > 0


@pytest.mark.parametrize("what", [marked(what, family) for what, (family, _, _) in families.LOST.items()])
def test_twin_a_part_of_an_environment_that_is_lost_is_found(
    what: str, straight: Callable[[str], Path], tmp_path: Path
):
    name, boundary, _ = families.LOST[what]
    run = stopped_at(straight(name), boundary, tmp_path / "run")
    families.train_family(run, name, lose=what)

    found = differences(straight(name), run)

    assert any(line.startswith(f"boundary {boundary + 1}: ") for line in found), found[:10]
    assert not [line for line in found if line.startswith(tuple(f"boundary {at}: " for at in range(boundary + 1)))]


def test_every_family_has_a_twin():
    quick = {name for name, family in families.FAMILIES.items() if not family.is_slow}
    alike = {"minigrid-async", "lstm-same-step", "lstm-disabled"}  # of families in another vector or network

    assert quick - alike <= {name for name, _, _ in families.LOST.values()}
