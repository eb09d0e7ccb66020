"""ALE's emulator: its system state, and the action that sticky actions repeat, which none of its states holds."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
ale_py = pytest.importorskip("ale_py")

from perdure.adapters.ale_sticky import repeats_to_come  # noqa: E402
from perdure.errors import RestoreError  # noqa: E402


def make(probability: float = 0.25) -> Any:
    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Breakout-v5", frameskip=1, obs_type="ram", repeat_action_probability=probability)


def used(env: Any, seed: int, steps: int) -> Any:
    env.reset(seed=seed)
    acted(env, steps, seed)
    return env


def acted(env: Any, steps: int, seed: int) -> list[Any]:
    actions, rows = np.random.default_rng(seed), []
    for _ in range(steps):
        observation, reward, terminated, *_ = env.step(int(actions.integers(4)))
        rows.append((observation.tobytes(), float(reward)))
        if terminated:
            env.reset()
    return rows


@pytest.mark.full
@pytest.mark.parametrize("probability", [0.0, 0.25, 0.7])
def test_exact_at_every_point_of_thirty(trip, probability: float):
    source = used(make(probability), 1, 25)
    for point in range(30):
        target = trip.restored(source, used(make(probability), 9 + point, 7))

        assert acted(target, 25, seed=point) == acted(source, 25, seed=point), f"point {point}"


@pytest.mark.full
def test_twin_without_the_last_action_some_points_are_wrong(trip, monkeypatch: pytest.MonkeyPatch):
    """The emulator's own state is the same, and the next frame is not."""
    monkeypatch.setattr("perdure.adapters.ale_interface.find_last_action", lambda *_: True)
    source, wrong = used(make(0.7), 1, 25), 0
    for point in range(20):
        target = used(make(0.7), 9 + point, 7)
        try:
            trip.restored(source, target)
        except RestoreError:
            wrong += 1
        acted(source, 5, seed=point)

    assert wrong > 0


def test_the_coming_repeats_are_those_that_happen(trip):
    env = used(make(0.7), 3, 40)
    ale = env.unwrapped.ale
    counted = []
    for _ in range(30):
        repeats = repeats_to_come(ale, ale.cloneSystemState().serialize())
        state = ale.cloneSystemState()
        ale.act(3)
        ale.restoreSystemState(state)
        counted.append(repeats)
        acted(env, 1, seed=1)
    falls = [after for before, after in itertools.pairwise(counted) if before > 0]

    assert falls == [before - 1 for before in counted[:-1] if before > 0]
    assert max(counted) >= 2


def test_capturing_changes_nothing(trip):
    captured, left_alone = used(make(0.7), 1, 30), used(make(0.7), 1, 30)
    for _ in range(10):
        trip.digest(captured)
        assert acted(captured, 7, seed=5) == acted(left_alone, 7, seed=5)


def test_twin_a_state_without_its_generator_diverges(trip):
    source, target = used(make(), 1, 30), used(make(), 9, 7)
    ale = target.unwrapped.ale
    trip.restored(source, target)
    before = ale.getRAM().tolist()
    ale.restoreState(source.unwrapped.ale.cloneState())
    used(target, 4, 0)
    ale.restoreState(source.unwrapped.ale.cloneState())

    assert ale.getRAM().tolist() == before
    assert trip.digest(target) != trip.digest(source)


def continuous(game: str = "Breakout", skip: int = 1) -> Any:
    options = {"continuous": True, "frameskip": skip, "obs_type": "ram", "repeat_action_probability": 0.25}
    return gymnasium.make(f"ALE/{game}-v5", **options)


def acted_by_strength(env: Any, steps: int, seed: int) -> list[Any]:
    """Steps in any direction and of any strength."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(steps):
        action = rng.uniform([0, -np.pi, 0], [1, np.pi, 1]).astype(np.float32)
        observation, reward, terminated, *_ = env.step(action)
        rows.append((observation.tobytes(), float(reward)))
        if terminated:
            env.reset()
    return rows


def used_by_strength(env: Any, seed: int, steps: int) -> Any:
    env.reset(seed=seed)
    acted_by_strength(env, steps, seed)
    return env


@pytest.mark.full
@pytest.mark.parametrize(("game", "skip"), [("Breakout", 1), ("Breakout", 4), ("Pong", 1), ("SpaceInvaders", 1)])
def test_the_strength_of_a_repeated_action_comes_back(trip, game: str, skip: int):
    """With paddles and without, at each of sixty points."""
    source, target = used_by_strength(continuous(game, skip), 1, 25), used_by_strength(continuous(game, skip), 9, 7)
    for point in range(60):
        trip.restored(source, target)

        assert acted_by_strength(target, 7, seed=point) == acted_by_strength(source, 7, seed=point), f"point {point}"
        acted_by_strength(target, 3, seed=100 + point)


@pytest.mark.full
def test_what_is_seen_between_two_repeats_comes_back(trip):
    """In Space Invaders two actions may lead to the same state by others: RAM holds the joystick for a frame."""

    def made(seed: int, steps: int) -> Any:
        env = gymnasium.make("ALE/SpaceInvaders-v5", frameskip=1, obs_type="ram", repeat_action_probability=0.25)
        return used(env, seed, steps)

    source, target = made(1, 25), made(9, 7)
    for point in range(60):
        trip.restored(source, target)

        assert acted(target, 7, seed=point) == acted(source, 7, seed=point), f"point {point}"
        acted(target, 3, seed=100 + point)


@pytest.mark.full
def test_twin_without_how_far_the_paddle_turned_it_is_refused_at_some_points(trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.adapters.ale_sticky._FARTHEST", 10**9)  # no strength is the right one
    source, target = used_by_strength(continuous(), 1, 25), used_by_strength(continuous(), 9, 7)

    def restored_again_and_again() -> None:
        for point in range(60):
            trip.restored(source, target)
            acted_by_strength(source, 7, seed=point)
            acted_by_strength(target, 3, seed=point)

    with pytest.raises(RestoreError, match="no action leads the emulator where it went in the run"):
        restored_again_and_again()


def test_another_game_is_a_finding(trip):
    other = gymnasium.make("ALE/Pong-v5", frameskip=1, obs_type="ram")

    assert ("c/env/env/spec", "ALE/Breakout-v5", "ALE/Pong-v5") in trip.findings(used(make(), 1, 3), used(other, 1, 3))


def test_a_lean_tree(trip):
    source = used(make(), 1, 30)

    assert trip.tree(source)["env"]["env"]["ale"]["system"].value.nbytes <= 18_000
    assert trip.component(source).facts["ale_py"] == ale_py.__version__


def test_a_generator_that_stands_elsewhere_is_refused(trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.adapters.ale_sticky._GENERATOR", re.compile(b"none"))

    with pytest.raises(TypeError, match=r"env/ale: ALE's generator was not found .* repeat_action_probability=0, or"):
        trip.tree(used(make(), 1, 3))
