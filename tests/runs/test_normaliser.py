"""A policy's normaliser gives what the run's own wrapper would give at the export, bit for bit, and never changes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402

import perdure  # noqa: E402
from perdure.gym import Recorded, make_vec  # noqa: E402
from perdure.runs.directory import RunDirectory  # noqa: E402
from perdure.runs.policies import store_of  # noqa: E402
from perdure.runs.policy_record import export_checkpoint  # noqa: E402

pytestmark = pytest.mark.usefixtures("global_generators")


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


@dataclass
class Case:
    """Environments of a run, and their own way to normalise."""

    envs: Any
    own: Callable[[np.ndarray], np.ndarray]


def of_gymnasium(wrapper: Any, envs: Any, *, batch: bool = False) -> Case:
    def own(observations: np.ndarray) -> np.ndarray:
        wrapper.update_running_mean = False
        if batch:
            return wrapper.observations(observations)
        return np.stack([wrapper.observation(row) for row in observations])

    return Case(envs, own)


def single() -> Case:
    env = wrappers.NormalizeObservation(cartpole(), epsilon=1e-3)
    return of_gymnasium(env, env)


def below_others() -> Case:
    env = wrappers.NormalizeObservation(Recorded(cartpole()))
    return of_gymnasium(env, wrappers.NormalizeReward(wrappers.FrameStackObservation(env, 2)))


def around_a_vector(mode: Any) -> Case:
    envs = wrappers.vector.NormalizeObservation(make_vec([cartpole] * 3, mode=mode))
    return of_gymnasium(envs, wrappers.vector.RecordEpisodeStatistics(envs), batch=True)


def alone_in_a_vector() -> Case:
    envs: Any = make_vec([lambda: wrappers.NormalizeObservation(cartpole())])
    return of_gymnasium(envs.envs[0], envs)


CASES = {
    "one environment": single,
    "below other wrappers": below_others,
    "a vector": lambda: around_a_vector("sync"),
    "workers": lambda: around_a_vector("async"),
    "the only one of a vector": alone_in_a_vector,
}


def played(envs: Any, steps: int = 30) -> None:
    envs.action_space.seed(1)
    envs.reset(seed=1)
    for _ in range(steps):
        _, _, terminated, truncated, *_ = envs.step(envs.action_space.sample())
        if not hasattr(envs, "num_envs") and (terminated or truncated):
            envs.reset()


OBSERVATIONS = np.random.default_rng(3).normal(size=(7, 4)).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_wrapper_s_own(case: str, tmp_path: Path):
    made = CASES[case]()
    with perdure.Run(tmp_path / "run", policy=["weights"], every=perdure.Every(updates=1)) as run:
        run.restore(weights=np.ones(3), envs=made.envs)
        played(made.envs)
        run.boundary(env_steps=30, weights=np.arange(3.0))
        live = perdure.load_policy(run.export_policy(weights=np.arange(3.0)), weights=np.ones(3))
    directory, name = RunDirectory(tmp_path / "run"), "step_0000000030"
    told = export_checkpoint(directory.store(), name, ["weights"], store_of(tmp_path / "later"), launch=None)
    later = perdure.load_policy(tmp_path / "later", weights=np.ones(3))

    assert told == (["observation_normaliser", "weights"], None)
    assert live["weights"].tolist() == later["weights"].tolist() == [0, 1, 2]
    expected = made.own(OBSERVATIONS)
    for loaded in (live, later):
        found = loaded["observation_normaliser"](OBSERVATIONS)
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
        assert found.tobytes() == loaded["observation_normaliser"](OBSERVATIONS).tobytes()
    made.envs.close()


def test_twin_later_statistics_and_none_at_all_are_others(tmp_path: Path):
    made = single()
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), env=made.envs)
        found = []
        for number in range(2):
            played(made.envs, steps=20)
            path = run.export_policy(tmp_path / str(number), weights=np.ones(3))
            found.append(perdure.load_policy(path, weights=np.ones(3))["observation_normaliser"](OBSERVATIONS))

    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], OBSERVATIONS)


def test_it_needs_no_target_and_takes_none(tmp_path: Path):
    made = single()
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), env=made.envs)
        policy = perdure.Policy(run.export_policy(weights=np.ones(3)))

    assert policy.components == ("observation_normaliser", "weights")
    assert policy.left_out.keys() == {"env", "process_rng"}
    with pytest.raises(perdure.UsageError, match=r"observation_normaliser needs no target: it is handed back\."):
        policy.load(weights=np.ones(3), observation_normaliser=1)


def test_one_for_each_of_several_environments_is_told_and_not_exported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    envs = make_vec([lambda: wrappers.NormalizeObservation(cartpole())] * 2)
    every = perdure.Every(updates=1)
    with perdure.Run(tmp_path / "run", policy=["weights"], policy_every=every) as run, caplog.at_level(logging.WARNING):
        run.restore(weights=np.ones(3), envs=envs)
        for number in (1, 2):
            run.boundary(env_steps=number, weights=np.ones(3))

    (message,) = [record.getMessage() for record in caplog.records]
    assert "each of 2 environments has statistics of its own" in message
    assert "It acts wrongly without them. Normalise the vector as a whole" in message
    policy = perdure.Policy(tmp_path / "run" / "policies" / "step_0000000002")
    assert (policy.components, policy.normaliser) == (("weights",), None)


def test_a_component_of_that_name_stays_the_run_s(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    env = wrappers.NormalizeObservation(cartpole())
    with perdure.Run(tmp_path / "run", policy=["observation_normaliser"]) as run:
        run.restore(observation_normaliser=np.ones(3), env=env)
        path = run.export_policy(observation_normaliser=np.full(3, 2.0))
    policy = perdure.Policy(path)

    assert policy.normaliser is None
    assert policy.load(observation_normaliser=np.ones(3))["observation_normaliser"].tolist() == [2, 2, 2]
    assert "'observation_normaliser' is a component of the run's own" in caplog.text


class Parts(gymnasium.Env):
    """Observations of two parts, of which one is normalised."""

    observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-9, 9, (2,)), "goal": gymnasium.spaces.Box(0, 9, (1,))}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> dict[str, np.ndarray]:
        drawn = self.np_random.normal(size=3).astype(np.float32)
        return {"place": drawn[:2], "goal": drawn[2:]}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["box", "dict"])
def test_stable_baselines_is_the_wrapper_s_own(kind: str, tmp_path: Path):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    inner = vec_env.DummyVecEnv([cartpole if kind == "box" else Parts] * 2)
    keys = {"norm_obs_keys": ["place"]} if kind == "dict" else {}
    normalising = vec_env.VecNormalize(inner, clip_obs=1.5, epsilon=1e-5, **keys)
    envs = normalising if kind == "dict" else vec_env.VecFrameStack(normalising, 2)
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), envs=envs)
        envs.seed(1)
        envs.reset()
        for _ in range(20):
            envs.step(np.array([0, 1]))
        loaded = perdure.load_policy(run.export_policy(weights=np.ones(3)), weights=np.ones(3))

    normaliser = loaded["observation_normaliser"]
    if kind == "box":
        expected, found = {"": normalising.normalize_obs(OBSERVATIONS)}, {"": normaliser(OBSERVATIONS)}
        assert (np.abs(found[""]).max(), found[""].dtype) == (1.5, np.float32)
    else:
        seen = {"place": OBSERVATIONS[:, :2], "goal": OBSERVATIONS[:, 2:3]}
        expected, found = normalising.normalize_obs(seen), normaliser(seen)
        assert found["goal"] is seen["goal"]
    assert all(np.asarray(expected[key]).tobytes() == np.asarray(found[key]).tobytes() for key in expected)


@pytest.mark.full
def test_stable_baselines_that_normalises_rewards_alone_has_none(tmp_path: Path):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = vec_env.VecNormalize(vec_env.DummyVecEnv([cartpole] * 2), norm_obs=False)
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), envs=envs)
        assert perdure.Policy(run.export_policy(weights=np.ones(3))).normaliser is None
