"""Synchronous vector environments in every autoreset mode: exact at every step, refused if they are built otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers import vector as vector_wrappers  # noqa: E402
from tests.gym.stepping import MODES, Make, advanced, cartpole, limits, pendulum, steps, wrapped  # noqa: E402


def plain(mode: str) -> Any:
    return SyncVectorEnv(limits(cartpole), autoreset_mode=mode)


def wrapped_inside(mode: str) -> Any:
    return SyncVectorEnv([wrapped(make) for make in limits(cartpole)], autoreset_mode=mode)


def wrapped_outside(mode: str) -> Any:
    envs: Any = SyncVectorEnv(limits(pendulum), autoreset_mode=mode)
    envs = vector_wrappers.RecordEpisodeStatistics(envs)
    envs = normalized(envs, mode)
    envs = vector_wrappers.TransformAction(envs, lambda actions: np.float32(0.5) * np.asarray(actions))
    envs = vector_wrappers.NormalizeReward(envs, gamma=0.9)
    return vector_wrappers.ClipReward(envs, -5.0, 5.0)


def wrapped_twice(mode: str) -> Any:
    envs = SyncVectorEnv([wrapped(make) for make in limits(pendulum)], autoreset_mode=mode)
    return vector_wrappers.NormalizeReward(normalized(envs, mode))


def normalized(envs: Any, mode: str) -> Any:
    """Gymnasium allows this wrapper in one mode only."""
    return vector_wrappers.NormalizeObservation(envs) if mode == "NextStep" else envs


STACKS: dict[str, Callable[[str], Any]] = {
    "plain": plain,
    "wrapped inside": wrapped_inside,
    "wrapped outside": wrapped_outside,
    "wrapped twice": wrapped_twice,
}


def stacks_and_modes() -> list[Any]:
    return [pytest.param(name, mode, id=f"{name} {mode}") for name in STACKS for mode in MODES]


@pytest.mark.parametrize(("name", "mode"), stacks_and_modes())
def test_with_a_reset_pending_in_some_a_restored_one_goes_on_bit_for_bit(trip, name: str, mode: str):
    """After 16 steps the environments are in mid-episode, or wait for their reset, depending on mode and limit."""
    source = advanced(STACKS[name](mode), 16)
    restored = trip.restored(source, advanced(STACKS[name](mode), 3, seed=99))

    assert steps(restored, 60, seed=3) == steps(source, 60, seed=3)


@pytest.mark.full
@pytest.mark.parametrize(("name", "mode"), stacks_and_modes())
def test_every_step_is_as_good_as_another(trip, name: str, mode: str):
    for count in range(30):
        source = advanced(STACKS[name](mode), count)
        restored = trip.restored(source, advanced(STACKS[name](mode), 3, seed=99))

        assert steps(restored, 25, seed=3) == steps(source, 25, seed=3), f"after {count} steps"


def test_resets_are_pending_where_the_test_above_says_so():
    counts = [advanced(plain("NextStep"), count)._autoreset_envs.sum() for count in range(30)]

    assert {int(count) for count in counts} >= {0, 1}


def reset_flag(envs: Any) -> None:
    envs.unwrapped._autoreset_envs[:] = ~envs.unwrapped._autoreset_envs


def ended_flags(envs: Any) -> None:
    find(envs, vector_wrappers.RecordEpisodeStatistics).prev_dones.fill(True)


def find(envs: Any, kind: type) -> Any:
    while not isinstance(envs, kind):
        envs = envs.env
    return envs


TWINS: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "pending resets": ("plain", "NextStep", reset_flag),
    "previous ends": ("wrapped outside", "NextStep", ended_flags),
    "count of the observations": (
        "wrapped outside",
        "NextStep",
        lambda envs: setattr(find(envs, vector_wrappers.NormalizeObservation).obs_rms, "count", 1e-4),
    ),
    "variance of the returns": (
        "wrapped outside",
        "SameStep",
        lambda envs: setattr(find(envs, vector_wrappers.NormalizeReward).return_rms, "var", np.ones(())),
    ),
    "accumulated rewards": (
        "wrapped outside",
        "Disabled",
        lambda envs: find(envs, vector_wrappers.NormalizeReward).accumulated_reward.fill(0.0),
    ),
    "statistics of the second environment": (
        "wrapped inside",
        "SameStep",
        lambda envs: setattr(find(envs.envs[1], wrappers.NormalizeReward).return_rms, "count", 1e-4),
    ),
    "frames of the third environment": (
        "wrapped inside",
        "Disabled",
        lambda envs: find(envs.envs[2], wrappers.FrameStackObservation).obs_queue.rotate(1),
    ),
    "generator of the first environment": (
        "wrapped twice",
        "Disabled",
        lambda envs: setattr(envs.unwrapped.envs[0].unwrapped, "np_random", np.random.default_rng(0)),
    ),
    "observations kept for a masked reset": (
        "plain",
        "Disabled",
        lambda envs: [obs.fill(0) for obs in envs.unwrapped._env_obs],
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_twin_a_part_that_is_reset_after_the_restore_is_found(trip, name: str):
    stack, mode, change = TWINS[name]
    source = advanced(STACKS[stack](mode), 16)
    restored = trip.restored(source, STACKS[stack](mode))
    change(restored)

    assert trip.digest(restored) != trip.digest(source)
    if name == "observations kept for a masked reset":
        mask = {"reset_mask": np.array([True, False, False])}
        assert restored.reset(options=dict(mask))[0].tobytes() != source.reset(options=dict(mask))[0].tobytes()
    else:
        assert steps(restored, 60, seed=3) != steps(source, 60, seed=3)


def test_another_autoreset_mode_is_a_finding(trip):
    found = trip.findings(plain("NextStep"), plain("SameStep"))

    assert found == [("c/autoreset_mode", AutoresetMode.NEXT_STEP.value, AutoresetMode.SAME_STEP.value)]


@pytest.mark.parametrize("within", [(5, 7), (5, 7, 11, 13)], ids=["fewer", "more"])
def test_another_number_of_environments_is_a_finding(trip, within: tuple[int, ...]):
    other = SyncVectorEnv(limits(cartpole, within), autoreset_mode="SameStep")

    assert ("c/envs", "list of 3", f"list of {len(within)}") in trip.findings(plain("SameStep"), other)


def test_another_order_of_environments_is_a_finding(trip):
    other = SyncVectorEnv(limits(cartpole, (7, 5, 11)), autoreset_mode="SameStep")

    assert trip.findings(plain("SameStep"), other) == [
        ("c/envs/0/arguments/max_episode_steps", "5", "7"),
        ("c/envs/1/arguments/max_episode_steps", "7", "5"),
    ]


def test_another_order_of_vector_wrappers_is_a_finding(trip):
    first, second = vector_wrappers.NormalizeReward, vector_wrappers.NormalizeObservation

    found = trip.findings(first(second(plain("NextStep"))), second(first(plain("NextStep"))))

    assert found == [("c", f"class gymnasium:{first.__name__}", f"class gymnasium:{second.__name__}")]


def test_a_lambda_that_binds_another_number_is_a_finding(trip):
    def scaled(factor: float) -> Any:
        def make() -> Any:
            return wrappers.TransformReward(gymnasium.make("Pendulum-v1"), lambda reward: factor * float(reward))

        return SyncVectorEnv([make] * 2)

    found = trip.findings(scaled(0.5), scaled(0.25))

    assert ("0.5", "0.25") in [(saved, here) for _, saved, here in found]
    assert all(place.startswith("c/envs/") for place, _, _ in found)


@pytest.mark.parametrize(
    "make", [lambda: gymnasium.make("CliffWalking-v1"), lambda: gymnasium.make("Taxi-v4")], ids=["CliffWalking", "Taxi"]
)
def test_toy_texts_in_a_vector(trip, make: Make):
    source = advanced(SyncVectorEnv([make] * 2), 40)
    restored = trip.restored(source, SyncVectorEnv([make] * 2))

    assert steps(restored, 100, seed=3) == steps(source, 100, seed=3)
