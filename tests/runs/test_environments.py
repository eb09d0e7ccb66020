"""What a policy was trained to see and do is told alike by single environments and vectors, levels included."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium import spaces, wrappers

import perdure
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.gym import LevelPool, Recorded, make_vec
from perdure.runs.environments import environment_of, wrappers_of
from perdure.tree.snapshot import Component


class Maze(gymnasium.Env[np.ndarray, Any]):
    """Does nothing, with a pool of levels."""

    def __init__(self, folder: Path, *, size: int = 3) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 1, (size,)), spaces.Discrete(2)
        self.pool = LevelPool(sorted(folder.glob("*.txt")))


@pytest.fixture
def levels(tmp_path: Path) -> Path:
    """Two levels."""
    (tmp_path / "levels").mkdir()
    for name in "ab":
        (tmp_path / "levels" / f"{name}.txt").write_text(name)
    return tmp_path / "levels"


def component(env: Any) -> Component:
    return capture({"envs": env}, Resolver(), Counters()).snapshot.components["envs"]


def told(env: Any) -> dict[str, str]:
    return {name: text for name, text in environment_of(component(env)).items() if name != "gymnasium"}


def test_single_environments_and_vectors_agree(levels: Path):
    single = told(Maze(levels))

    assert single["observation_space"] == "Box(0.0, 1.0, (3,), float32)"
    assert single["action_space"] == "Discrete(2)"
    assert single["levels"] == "2 levels"
    assert single["levels/0"].startswith("a.txt xxh3_128:")
    assert told(make_vec([lambda: Maze(levels)] * 2)) == single
    assert told(gymnasium.vector.SyncVectorEnv([lambda: Maze(levels)] * 2)) == single
    assert told(wrappers.RecordEpisodeStatistics(Maze(levels))) == single


@pytest.mark.full
def test_environments_in_processes_of_their_own_agree(levels: Path):
    envs = make_vec([lambda: Maze(levels)] * 2, mode="async")
    try:
        assert told(envs) == told(Maze(levels))
    finally:
        envs.close()


def test_the_outermost_space_is_what_the_policy_sees(levels: Path):
    stacked = wrappers.FrameStackObservation(wrappers.NormalizeObservation(Maze(levels)), 4)
    vector = gymnasium.wrappers.vector.NormalizeObservation(make_vec([lambda: Maze(levels)] * 2))

    assert told(stacked)["observation_space"] == "Box(-inf, inf, (4, 3), float32)"
    assert told(vector)["observation_space"] == "Box(-inf, inf, (3,), float32)"
    assert wrappers_of(component(stacked)) == (
        "class gymnasium:FrameStackObservation",
        "class gymnasium:NormalizeObservation",
    )
    assert wrappers_of(component(vector)) == ("class gymnasium:NormalizeObservation",)


def test_registered_environments_tell_their_id():
    env = told(gymnasium.make("CartPole-v1"))

    assert env["id"] == "CartPole-v1"
    assert told(make_vec([lambda: gymnasium.make("CartPole-v1")] * 2)) == env
    assert wrappers_of(component(gymnasium.make("CartPole-v1")))[0] == "class gymnasium:TimeLimit"


def test_recorded_environments_tell_the_same():
    plain, recorded = gymnasium.make("CartPole-v1"), Recorded(gymnasium.make("CartPole-v1"))
    recorded.reset(seed=1)

    assert told(recorded) == told(plain)
    assert wrappers_of(component(recorded)) == wrappers_of(component(plain))


@pytest.fixture
def policy(levels: Path, tmp_path: Path) -> perdure.Policy:
    """Trained in two mazes side by side."""
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), envs=make_vec([lambda: Maze(levels)] * 2))
        return perdure.Policy(run.export_policy(weights=np.arange(3.0)))


def test_the_same_environment_is_taken(policy: perdure.Policy, levels: Path):
    assert policy.load(env=Maze(levels), weights=np.ones(3))["weights"].tolist() == [0, 1, 2]


def test_another_level_pool_is_refused_and_the_level_is_named(policy: perdure.Policy, levels: Path):
    (levels / "b.txt").write_text("c")
    weights = np.ones(3)

    with pytest.raises(perdure.PolicyMismatchError) as raised:
        policy.load(env=Maze(levels), weights=weights)

    (finding,) = raised.value.findings
    assert finding.key == "environment.levels/1"
    assert "b.txt" in finding.saved
    assert "Play the levels that it was trained on, byte for byte." in str(raised.value)
    assert weights.tolist() == [1, 1, 1]


def test_a_missing_level_and_another_space_are_found_together(policy: perdure.Policy, levels: Path):
    (levels / "b.txt").unlink()

    with pytest.raises(perdure.PolicyMismatchError, match="3 differences; nothing was changed") as raised:
        policy.check(env=Maze(levels, size=4))

    assert [(finding.key, finding.found) for finding in raised.value.findings] == [
        ("environment.levels", "'1 levels'"),
        ("environment.levels/1", "nothing"),
        ("environment.observation_space", "'Box(0.0, 1.0, (4,), float32)'"),
    ]
    assert "'Box(0.0, 1.0, (3,), float32)' in the run, 'Box(0.0, 1.0, (4,), float32)' here." in str(raised.value)
