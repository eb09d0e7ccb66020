"""Stable-Baselines3's vector environments and wrappers: exact at every step, and twins that lose a part are found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
gymnasium = pytest.importorskip("gymnasium")

from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)
from tests.gym.stepping import LIMITS, exact  # noqa: E402

from perdure.errors import CaptureError, WorkerDiedError  # noqa: E402
from perdure.gym import Snapshot  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

FURTHER = 40


def pendulum(limit: int) -> Callable[[], Any]:
    return lambda: Monitor(gymnasium.make("Pendulum-v1", max_episode_steps=limit))


def cartpole(limit: int) -> Callable[[], Any]:
    return lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)


class TwoParts(gymnasium.Env):
    """Observations of two parts, and an info at each reset."""

    observation_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Box(-9, 9, (3,)), "b": gymnasium.spaces.Box(-9, 9, (2,))}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {"level": int(self.np_random.integers(1000))}

    def step(self, action: Any) -> Any:
        return self._seen(), float(self.np_random.random()), bool(self.np_random.random() < 0.1), False, {}

    def _seen(self) -> Any:
        drawn = self.np_random.standard_normal(5).astype(np.float32)
        return {"a": drawn[:3], "b": drawn[3:]}


def all_in_a_row(envs: Any = None) -> Any:
    envs = envs or DummyVecEnv([pendulum(limit) for limit in LIMITS])
    return VecFrameStack(VecNormalize(VecMonitor(envs), gamma=0.9), 3)


def monitored() -> Any:
    return VecMonitor(DummyVecEnv([cartpole(limit) for limit in LIMITS]))


def of_two_parts() -> Any:
    return VecFrameStack(VecNormalize(DummyVecEnv([TwoParts] * 2), norm_obs_keys=["a"]), 2)


STACKS: dict[str, Callable[[], Any]] = {
    "all in a row": all_in_a_row,
    "plain": monitored,
    "monitored inside": lambda: DummyVecEnv([pendulum(limit) for limit in LIMITS]),
    "two parts": of_two_parts,
}

pytestmark.append(pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`:UserWarning"))


def walk(envs: Any, steps: int, seed: int) -> list[Any]:
    actions, rows = np.random.default_rng(seed), []
    for _ in range(steps):
        if isinstance(envs.action_space, gymnasium.spaces.Discrete):
            drawn: Any = actions.integers(envs.action_space.n, size=envs.num_envs)
        else:
            drawn = actions.uniform(-2, 2, (envs.num_envs, *envs.action_space.shape)).astype(np.float32)
        rows.append([exact(part) for part in (*envs.step(drawn), list(envs.unwrapped.reset_infos))])
    return rows


def advanced(envs: Any, steps: int, seed: int = 11) -> Any:
    envs.seed(seed)
    envs.reset()
    walk(envs, steps, seed)
    return envs


def layer(envs: Any, kind: type) -> Any:
    while not isinstance(envs, kind):
        envs = envs.venv
    return envs


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("steps", [0, 1, 5, 16])
def test_a_restored_stack_goes_on_bit_for_bit(trip, name: str, steps: int):
    source = advanced(STACKS[name](), steps)
    restored = trip.restored(source, STACKS[name]() if steps else advanced(STACKS[name](), 4, seed=99))

    assert walk(restored, FURTHER, 3) == walk(source, FURTHER, 3)


@pytest.mark.full
@pytest.mark.parametrize("name", STACKS)
def test_every_step_is_as_good_as_another(trip, name: str):
    for steps in range(24):
        source = advanced(STACKS[name](), steps)
        restored = trip.restored(source, advanced(STACKS[name](), 3, seed=99))

        assert walk(restored, FURTHER, 3) == walk(source, FURTHER, 3), f"after {steps} steps"


def test_capturing_changes_nothing(trip):
    captured, left_alone = advanced(all_in_a_row(), 9), advanced(all_in_a_row(), 9)

    assert trip.digest(captured) == trip.digest(captured)
    assert walk(captured, FURTHER, 3) == walk(left_alone, FURTHER, 3)


def test_seeds_that_wait_for_the_next_reset_come_back(trip):
    source = monitored()
    source.seed(5)
    restored = trip.restored(source, monitored())

    assert exact(restored.reset()) == exact(source.reset())


def test_what_monitor_has_counted_comes_back_without_durations(trip):
    source = advanced(all_in_a_row(), 30)
    before = trip.digest(source)
    first = layer(source, DummyVecEnv).envs[0]
    first.t_start -= 100.0
    first.episode_times = [0.0]
    layer(source, VecMonitor).t_start -= 100.0

    assert trip.digest(source) == before
    restored = layer(trip.restored(source, all_in_a_row()), DummyVecEnv).envs[0]
    assert (restored.episode_returns, restored.episode_lengths) == (first.episode_returns, first.episode_lengths)
    assert (restored.rewards, restored.total_steps) == (first.rewards, first.total_steps)
    assert [type(item) for item in restored.episode_returns] == [float] * 6
    assert restored.episode_times == []


def test_the_observations_that_were_normalised_last_come_back(trip):
    source = advanced(all_in_a_row(), 9)
    restored = trip.restored(source, all_in_a_row())

    for name in ("get_original_obs", "get_original_reward"):
        now = getattr(layer(restored, VecNormalize), name)()
        assert exact(now) == exact(getattr(layer(source, VecNormalize), name)())


def _of(kind: type, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda envs: change(layer(envs, kind))


TWINS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "mean": ("all in a row", _of(VecNormalize, lambda envs: envs.obs_rms.mean.fill(0))),
    "count": ("all in a row", _of(VecNormalize, lambda envs: setattr(envs.obs_rms, "count", 1e-4))),
    "variance of the returns": (
        "all in a row",
        _of(VecNormalize, lambda envs: setattr(envs.ret_rms, "var", np.float64(1))),
    ),
    "returns": ("all in a row", _of(VecNormalize, lambda envs: envs.returns.fill(0))),
    "training": ("all in a row", _of(VecNormalize, lambda envs: setattr(envs, "training", False))),
    "mean of one part": ("two parts", _of(VecNormalize, lambda envs: envs.obs_rms["a"].mean.fill(0))),
    "frames": ("all in a row", _of(VecFrameStack, lambda envs: envs.stacked_obs.stacked_obs.fill(0))),
    "frames of one part": (
        "two parts",
        _of(VecFrameStack, lambda envs: envs.stacked_obs.sub_stacked_observations["b"].stacked_obs.fill(0)),
    ),
    "episode returns": ("plain", _of(VecMonitor, lambda envs: envs.episode_returns.fill(0))),
    "episode lengths": ("plain", _of(VecMonitor, lambda envs: envs.episode_lengths.fill(0))),
    "rewards": ("monitored inside", _of(DummyVecEnv, lambda envs: envs.envs[0].rewards.clear())),
    "reset infos": ("two parts", _of(DummyVecEnv, lambda envs: envs.reset_infos.reverse())),
    "generator of one": (
        "plain",
        _of(DummyVecEnv, lambda envs: setattr(envs.envs[1].unwrapped, "np_random", np.random.default_rng(0))),
    ),
}

SEEN_BY_DIGEST_ALONE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "episode count": ("plain", _of(VecMonitor, lambda envs: setattr(envs, "episode_count", 0))),
    "total steps": ("all in a row", _of(DummyVecEnv, lambda envs: setattr(envs.envs[0], "total_steps", 0))),
    "old rewards": ("all in a row", _of(VecNormalize, lambda envs: envs.old_reward.fill(0))),
    "buffers": ("plain", _of(DummyVecEnv, lambda envs: envs.buf_obs[None].fill(0))),
}
"""What no step of these tests shows."""


@pytest.mark.parametrize("name", [*TWINS, *SEEN_BY_DIGEST_ALONE])
def test_twin_a_part_that_is_reset_after_the_restore_is_found(trip, name: str):
    stack, change = {**TWINS, **SEEN_BY_DIGEST_ALONE}[name]
    source = advanced(STACKS[stack](), 16)
    restored = trip.restored(source, STACKS[stack]())
    change(restored)

    assert trip.digest(restored) != trip.digest(source)
    if name in TWINS:
        assert walk(restored, FURTHER, 3) != walk(source, FURTHER, 3)


def test_stacks_that_were_built_otherwise_are_findings(trip):
    def stack(gamma: float = 0.9, frames: int = 3, count: int = 3) -> Any:
        envs = DummyVecEnv([pendulum(9)] * count)
        return VecNormalize(VecFrameStack(envs, frames), gamma=gamma)

    assert ("c/gamma", "0.9", "0.8") in trip.findings(stack(), stack(gamma=0.8))
    assert ("c/venv/stacked_obs/n_stack", "3", "2") in trip.findings(stack(), stack(frames=2))
    assert ("c/venv/venv/envs", "list of 3", "list of 2") in trip.findings(stack(), stack(count=2))
    other = VecFrameStack(VecNormalize(DummyVecEnv([pendulum(9)] * 3), gamma=0.9), 3)
    [(place, saved, found)] = trip.findings(stack(), other)
    assert place == "c"
    assert "VecNormalize" in saved
    assert "VecFrameStack" in found


def in_processes(factories: list[Any]) -> SubprocVecEnv:
    return SubprocVecEnv(factories, start_method="fork")


def inside_snapshot(limit: int) -> Callable[[], Any]:
    return lambda: Snapshot(pendulum(limit)())


@pytest.mark.full
def test_environments_in_other_processes_go_on_bit_for_bit(trip):
    """The infos of resets too, which the workers keep in local variables."""
    for make in ([inside_snapshot(limit) for limit in LIMITS], [lambda: Snapshot(TwoParts())] * 2):
        source, target = VecNormalize(in_processes(make), gamma=0.9), VecNormalize(in_processes(make), gamma=0.9)
        straight = VecNormalize(in_processes(make), gamma=0.9)
        for envs in (source, straight, target):
            advanced(envs, 0, seed=5)
        for at in range(12):
            trip.restored(source, target)
            assert walk(target, 15, seed=at) == walk(trip.restored(source, straight), 15, seed=at), f"after {at} steps"
            walk(source, 1, seed=at)
        for envs in (source, straight, target):
            envs.close()


@pytest.mark.full
def test_twin_an_environment_elsewhere_that_was_reset_is_found(trip):
    make = [inside_snapshot(limit) for limit in LIMITS[:2]]
    source, target = advanced(in_processes(make), 8), in_processes(make)
    trip.restored(source, target)
    target.env_method("reset", indices=1)

    assert trip.digest(target) != trip.digest(source)
    assert walk(target, 10, seed=3) != walk(source, 10, seed=3)
    source.close()
    target.close()


@pytest.mark.parametrize(
    "make",
    [lambda: Monitor(Snapshot(cartpole(9)())), lambda: cartpole(9)()],
    ids=["inside", "without"],
)
def test_environments_elsewhere_without_the_wrapper_are_refused(trip, make: Any):
    envs = in_processes([make] * 2)
    with pytest.raises(
        CaptureError, match=r"c: a SubprocVecEnv .*perdure\.gym\.Snapshot the outermost wrapper of each"
    ):
        trip.tree(envs)
    envs.reset()  # the workers live on
    envs.close()


def test_an_environment_elsewhere_that_was_built_otherwise_is_a_finding(trip):
    source = in_processes([inside_snapshot(9)] * 2)
    target = in_processes([inside_snapshot(9), lambda: Snapshot(gymnasium.make("Pendulum-v1", max_episode_steps=9))])
    few = in_processes([inside_snapshot(9)])

    findings = trip.findings(source, target)
    assert [(place, found) for place, _, found in findings if place == "c/envs/1/env"] == [
        ("c/envs/1/env", "class gymnasium:TimeLimit")
    ]
    assert ("c/envs", "list of 2", "list of 1") in trip.findings(source, few)
    for envs in (source, target, few):
        envs.close()


def test_a_dead_worker_is_named(trip):
    envs = in_processes([inside_snapshot(9)] * 2)
    envs.processes[1].kill()
    envs.processes[1].join()

    with pytest.raises(WorkerDiedError, match=r"environment 1: its worker process died \(signal 9 killed it\)"):
        trip.tree(envs)
    envs.processes[0].kill()


class Global(gymnasium.Wrapper):
    """Draws a reward from a generator of its process."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = self.env.step(action)
        return (observation, random.random(), *rest)


def test_environments_elsewhere_that_draw_from_global_generators_are_refused(trip):
    envs = in_processes([lambda: Snapshot(Global(cartpole(9)())), lambda: Snapshot(cartpole(9)())])
    envs.reset()
    trip.tree(envs)
    envs.env_method("step", 0, indices=0)

    with pytest.raises(
        CaptureError, match=r"^c/envs/0: the environment has drawn from a global generator .*self\.np_ran"
    ):
        trip.tree(envs)
    envs.close()
