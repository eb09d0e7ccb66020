"""Boundary-reset: around an engine that nobody can look into, a stopped run equals one that was never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv  # noqa: E402

from perdure import BoundaryReset, Every, Run, UsageError  # noqa: E402
from perdure.checkpoint.opening import read_manifest  # noqa: E402
from perdure.errors import CaptureError, ContractError  # noqa: E402
from perdure.gym import make_vec  # noqa: E402
from perdure.runs.boundary_reset import seeds_of  # noqa: E402
from perdure.runs.directory import RunDirectory  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]


class Engine:
    """Stands for a game in another language: what it holds cannot be reached."""

    __slots__ = ("_draw",)

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        at = np.zeros(2)

        def draw(action: float) -> np.ndarray:
            at[:] = 0.9 * at + action + generator.normal(size=2)
            return at.astype(np.float32)

        self._draw = draw

    def step(self, action: float) -> np.ndarray:
        return self._draw(action)


class Game(gymnasium.Env):
    """An environment around the engine."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.engine: Engine | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.engine = Engine(int(self.np_random.integers(1 << 30)))
        return self.engine.step(0.0), {}

    def step(self, action: Any) -> Any:
        assert self.engine is not None
        observation = self.engine.step(float(action))
        return observation, float(observation.sum()), False, False, {}


def game() -> Any:
    env = wrappers.TimeLimit(Game(), 7)
    return wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(wrappers.NormalizeObservation(env)))


def several() -> Any:
    return wrappers.vector.NormalizeReward(SyncVectorEnv([game] * 3))


def elsewhere() -> Any:
    return make_vec([game] * 3, mode="async", context="fork")


CONFIG = {"total": 120, "seed": 1}
CADENCE = BoundaryReset(seed=1, every=Every(updates=3))


class Training:
    """Weights that follow rewards; 3 environments of 4 steps, or one of 12, an update."""

    def __init__(self, directory: Path, make: Callable[[], Any] = several, **options: Any) -> None:
        self.envs = make()
        given = {"config": CONFIG, "horizon": "total", "boundary_reset": CADENCE, "keep": None, **options}
        self.run = Run(directory, **given)
        self.weights = np.zeros(2)
        self.resets = 0

    def restore(self) -> Training:
        self.envs.action_space.seed(5)
        s = self.run.restore(envs=self.envs, weights=self.weights)
        assert s.envs is self.envs
        self.weights = s.weights
        self.observation, _ = s.boundary_reset
        return self

    def go(self, updates: int) -> list[float]:
        """To the number of updates; returns the weights."""
        while self.run.updates < updates:
            self.update()
        self.run.close()
        self.envs.close()
        return self.weights.tolist()

    def update(self) -> None:
        for _ in range(4 if hasattr(self.envs, "num_envs") else 12):
            step = self.envs.step(self.envs.action_space.sample())
            self.observation = step[0]
            self.weights = 0.9 * self.weights + np.mean(step[1]) * self.observation.reshape(-1, 2).mean(axis=0)
            if not hasattr(self.envs, "num_envs") and (step[2] or step[3]):
                self.observation, _ = self.envs.reset()
        reset = self.run.boundary(env_steps=self.run.env_steps + 12, weights=self.weights)
        if reset is not None:
            self.resets += 1
            self.observation, _ = reset


@pytest.mark.parametrize("make", [game, several, pytest.param(elsewhere, marks=pytest.mark.full)])
def test_a_run_that_is_stopped_anywhere_equals_one_that_is_not(tmp_path: Path, make: Callable[[], Any]):
    """Also between checkpoints, where a resume goes back to the last."""
    expected = Training(tmp_path / "straight", make).restore().go(10)
    for stop in (1, 3, 4, 6, 8):
        directory = tmp_path / f"stopped{stop}"
        Training(directory, make).restore().go(stop)

        assert Training(directory, make).restore().go(10) == expected, f"after {stop} updates"


def test_a_run_may_be_stopped_more_than_once(tmp_path: Path):
    expected = Training(tmp_path / "straight").restore().go(10)
    for updates in (2, 4, 5, 7):
        Training(tmp_path / "stopped").restore().go(updates)

    assert Training(tmp_path / "stopped").restore().go(10) == expected


def test_a_run_may_go_on_with_its_environments_elsewhere_and_twins_are_found(tmp_path: Path):
    """Wrappers' statistics outlive resets; another reset, or lost statistics, give other weights."""

    def resumed(change: Callable[[Training], object]) -> list[float]:
        directory = tmp_path / change.__name__
        Training(directory).restore().go(4)
        training = Training(directory).restore()
        change(training)
        return training.go(10)

    def nothing(training: Training) -> None: ...

    def another_reset(training: Training) -> None:
        training.envs.reset(seed=[1, 2, 3])

    def lost_statistics(training: Training) -> None:
        training.envs.unwrapped.envs[1].env.env.obs_rms.count = 1e-4

    def lost_space(training: Training) -> None:
        training.envs.action_space.seed(6)

    expected = Training(tmp_path / "straight").restore().go(10)
    assert resumed(nothing) == expected
    for twin in (another_reset, lost_statistics, lost_space):
        assert resumed(twin) != expected, twin.__name__


def test_only_boundaries_of_the_cadence_and_the_end_are_saved_and_their_class_is_told(tmp_path: Path):
    training = Training(tmp_path / "x").restore()
    training.go(10)
    store = RunDirectory(tmp_path / "x").store()

    assert [name[-3:] for name in store.names()] == ["000", "036", "072", "108", "120"]
    manifest, _ = read_manifest(store, store.names()[0])
    assert manifest.fidelity == "boundary-reset"
    assert manifest.components["envs"].reason == "envs: the environments are reset at each checkpoint"
    assert training.resets == 4


def test_without_the_mode_such_an_environment_is_refused(tmp_path: Path):
    training = Training(tmp_path / "x", boundary_reset=None)
    training.envs.reset(seed=1)

    with pytest.raises(CaptureError, match=r"envs/.*/engine/_draw: the function .* binds generator"):
        training.run.restore(envs=training.envs, weights=training.weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"boundary_reset": BoundaryReset(seed=1, every=Every(updates=2))},
            r"env\.boundary_reset: .*every 3 updates.* in the run, .*every 2 updates.* here",
        ),
        (
            {"boundary_reset": BoundaryReset(seed=2, every=Every(updates=3))},
            r"seed\.boundary_reset: 1 in the run, 2 here",
        ),
        ({"boundary_reset": None, "make": lambda: gymnasium.make("CartPole-v1")}, r"env\.boundary_reset"),
    ],
    ids=["cadence", "seed", "without"],
)
def test_cadence_and_seed_are_contract(tmp_path: Path, options: Any, message: str):
    Training(tmp_path / "x").restore().go(4)
    training = Training(tmp_path / "x", **options)

    with pytest.raises(ContractError, match=message):
        training.run.restore(envs=training.envs, weights=training.weights)


def test_another_wrapper_is_a_finding(tmp_path: Path):
    Training(tmp_path / "x").restore().go(4)
    training = Training(tmp_path / "x", lambda: wrappers.vector.NormalizeReward(SyncVectorEnv([Game] * 3)))

    with pytest.raises(ContractError, match=r"envs/env/envs/0: class gymnasium:NormalizeReward in the run, class "):
        training.run.restore(envs=training.envs, weights=training.weights)


def test_a_checkpoint_at_the_end_of_a_shorter_run_is_told_when_a_longer_one_goes_on(tmp_path: Path):
    shorter = {"config": {**CONFIG, "total": 48}, "schedules": "none"}
    Training(tmp_path / "x", **shorter).restore().go(4)
    training = Training(tmp_path / "x", schedules="none").restore()

    assert [notice for notice in training.run.notices if "not on the cadence" in notice] == [
        "this checkpoint stands where a shorter run ended, not on the cadence: the environments are reset here, and "
        "would not be in a run that was never stopped."
    ]
    assert not Training(tmp_path / "y").restore().run.notices


def test_another_function_may_reset_the_environments(tmp_path: Path):
    asked = []

    def reset(envs: Any, seeds: list[int]) -> Any:
        asked.append(seeds)
        return envs.reset(seed=seeds)

    terms = BoundaryReset(seed=1, every=Every(env_steps=24), name="envs", reset=reset)
    Training(tmp_path / "x", boundary_reset=terms).restore().go(5)

    assert asked == [seeds_of(1, boundary, 3) for boundary in (0, 2, 4)]


def test_every_reset_of_every_environment_has_a_seed_of_its_own():
    seeds = [seed for run in (0, 1) for boundary in range(50) for seed in seeds_of(run, boundary, 8)]

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << 31 for seed in seeds)
    assert seeds_of(1, 3, 2) == seeds_of(1, 3, 8)[:2]


def test_gymnasiums_own_workers_are_refused(tmp_path: Path):
    envs = object.__new__(AsyncVectorEnv)
    envs.closed = True
    with pytest.raises(CaptureError, match=r"envs: what wrappers count in the processes .*perdure\.gym\.make_vec"):
        Run(tmp_path / "x", boundary_reset=CADENCE).restore(envs=envs)


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda path: Run(path, boundary_reset=CADENCE, every=Every(updates=1)), r"boundary_reset decides the cadence"),
        (lambda path: Training(path, boundary_reset=3), r"boundary_reset=3: a BoundaryReset\(seed=…, every=…\)"),
        (lambda path: BoundaryReset(seed=1, every=Every(minutes=1)), r"give it in env_steps or updates, not in min"),
        (lambda path: BoundaryReset(seed=1, every=Every(updates=1, minutes=1)), r"decides what is learned"),
        (lambda path: BoundaryReset(seed=-1, every=Every(updates=1)), r"seed=-1"),
        (lambda path: Run(path, boundary_reset=CADENCE).restore(x=1), r"resets the component 'envs': hand in envs=…"),
        (lambda path: Run(path, boundary_reset=CADENCE).restore(envs=1, boundary_reset=2), r"is reserved"),
        (lambda path: Run(path, boundary_reset=CADENCE).restore(envs=[]), r"environments of Gymnasium, not a list"),
    ],
    ids=["two cadences", "number", "minutes", "and minutes", "seed", "no environments", "reserved", "no environment"],
)
def test_bad_input(tmp_path: Path, do: Any, message: str):
    with pytest.raises((UsageError, CaptureError), match=message):
        do(tmp_path / "x")
