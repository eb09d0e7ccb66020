"""What is refused when a training goes on with other environments than it had, and what is not."""

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402

from perdure import ContractError, Every, RestoreError, Run, UnknownObjectError, WorkerDiedError  # noqa: E402
from perdure.contract import arithmetic  # noqa: E402
from perdure.errors import CaptureError  # noqa: E402
from perdure.gym import LevelPool, Recorded, make_vec  # noqa: E402
from perdure.torch import PPOConfig, train  # noqa: E402
from perdure.torch.config import from_mapping, to_mapping  # noqa: E402

pytestmark = [
    pytest.mark.full,
    # A fork of a process that other tests made JAX start threads in: these workers use none of them.
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

SMALL = PPOConfig(
    total_timesteps=80, n_envs=2, n_steps=8, n_minibatches=2, n_epochs=1, hidden_sizes=(4,), autoreset="next-step"
)
Make = Callable[[], Any]


class Interrupted(Exception):
    """Instead of an accident."""


def trained(
    directory: Path,
    factories: Sequence[Make],
    *,
    stop_at: int | None = None,
    log_fn: Callable[[Any], None] = lambda envs: None,
    config: dict[str, Any] | None = None,
    mode: Any = "sync",
    autoreset_mode: str = "NextStep",
) -> tuple[list[Any], list[str]]:
    """Trains from where the run stands; returns the metrics' rows and the notices.

    Args:
        directory: the run's.
        factories: make the environments.
        stop_at: in this update the training is interrupted; those before are saved.
        log_fn: gets the vector of environments after each update.
        config: what the run is told beside the options.
        mode: of the vector.
        autoreset_mode: of the vector.
    """
    options = from_mapping({**to_mapping(SMALL), "n_envs": len(factories), "total_timesteps": 40 * len(factories)})

    def log(_: Any, env_steps: int) -> None:
        if env_steps == (stop_at or 0) * options.steps_per_update:
            raise Interrupted
        log_fn(envs)

    told = {**to_mapping(options), **(config or {})}
    with (
        closing(make_vec(factories, mode=mode, autoreset_mode=autoreset_mode)) as envs,
        Run(directory, config=told, horizon="total_timesteps", every=Every(updates=1), free=["device"]) as run,
    ):
        train(envs, options, run=run, log_fn=log)
    return run.metrics_rows(), list(run.notices)


def interrupted(directory: Path, factories: Sequence[Make], **options: Any) -> None:
    """A training that stops after two updates."""
    with pytest.raises(Interrupted):
        trained(directory, factories, stop_at=3, **options)


def refused(directory: Path, factories: Sequence[Make], **options: Any) -> list[str]:
    """The differences for which a resume is refused, each as the message tells it."""
    before = sorted(directory.rglob("*"))
    with pytest.raises(ContractError) as refusal:
        trained(directory, factories, **options)
    assert sorted(directory.rglob("*")) == before
    assert all(finding.difference in str(refusal.value) for finding in refusal.value.findings)
    return [finding.difference.removesuffix(".") for finding in refusal.value.findings]


def cartpole(limit: int = 6) -> Make:
    return lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)


def test_another_number_of_environments(tmp_path: Path):
    interrupted(tmp_path / "run", [cartpole()] * 2)

    found = refused(tmp_path / "run", [cartpole()] * 3)

    assert "envs/envs: list of 2 in the run, list of 3 here" in found
    assert any("n_envs: 2 in the run, 3 here" in line for line in found)


def test_another_order_of_environments(tmp_path: Path):
    interrupted(tmp_path / "run", [cartpole(6), cartpole(9)])

    assert refused(tmp_path / "run", [cartpole(9), cartpole(6)]) == [
        "envs/envs/0/arguments/max_episode_steps: 6 in the run, 9 here",
        "envs/envs/1/arguments/max_episode_steps: 9 in the run, 6 here",
    ]


def test_another_order_of_wrappers(tmp_path: Path):
    first, second = wrappers.NormalizeReward, wrappers.NormalizeObservation
    interrupted(tmp_path / "run", [lambda: first(second(cartpole()()))] * 2)

    found = refused(tmp_path / "run", [lambda: second(first(cartpole()()))] * 2)

    names = "class gymnasium:NormalizeReward in the run, class gymnasium:NormalizeObservation here"
    assert [f"envs/envs/{index}: {names}" for index in (0, 1)] == [line for line in found if "class" in line]


def test_another_autoreset_mode(tmp_path: Path):
    interrupted(tmp_path / "run", [cartpole()] * 2)

    assert refused(tmp_path / "run", [cartpole()] * 2, autoreset_mode="SameStep") == [
        "envs/autoreset_mode: NextStep in the run, SameStep here"
    ]


class Engine(gymnasium.Env, gymnasium.utils.EzPickle):
    """Pickles by its constructor's arguments, and holds something that no walk over attributes sees."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    is_broken = False

    def __init__(self, index: int = 0) -> None:
        gymnasium.utils.EzPickle.__init__(self, index)
        self.index, self.engine, self.at, self.steps = index, threading.Lock(), 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.steps = float(self.np_random.normal()), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at, self.steps = self.at + float(action), self.steps + 1
        return self._seen(), 1.0, False, self.steps == 11, {}

    def _seen(self) -> np.ndarray:
        return np.full(1, self.at + (self.is_broken and self.index == 2 and self.steps > 2), np.float32)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_environment_that_pickles_by_its_arguments(mode: str, tmp_path: Path):
    with pytest.raises(UnknownObjectError) as refusal:
        trained(tmp_path / "run", [Engine] * 2, mode=mode)

    assert "envs/envs/0/engine: no adapter knows a _thread.lock" in str(refusal.value)
    assert "Part of this environment's state would be missing from every checkpoint" in str(refusal.value)
    assert "wrap the environment in perdure.gym.Recorded(env)." in str(refusal.value)


def test_a_replay_that_gives_another_observation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of several recorded environments: which, and at which step. The same engine goes on exactly."""
    factories = [lambda index=index: wrappers.NormalizeReward(Recorded(Engine(index))) for index in range(4)]
    straight, _ = trained(tmp_path / "straight", factories)
    for name in ("run", "broken"):
        interrupted(tmp_path / name, factories)
    assert trained(tmp_path / "run", factories)[0] == straight

    monkeypatch.setattr(Engine, "is_broken", True)
    with pytest.raises(RestoreError) as refusal:
        trained(tmp_path / "broken", factories)

    # 16 steps are done: 11 of the first episode, one that only reset, 4 of the second.
    assert (
        "envs/envs/2/env: Engine, replayed: the observation after step 4 since the reset is another one than in the "
        "run. The environment is not deterministic, or keeps something across resets; perdure.gym.probe tells which"
    ) in str(refusal.value)


def rewards_by(change: Callable[[float], float]) -> Make:
    return lambda: wrappers.TransformReward(cartpole()(), lambda reward: change(float(reward)))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_function_that_binds_a_generator(mode: str, tmp_path: Path):
    rng = np.random.default_rng(1)
    with pytest.raises(CaptureError) as refusal:
        trained(tmp_path / "run", [rewards_by(lambda reward: reward + rng.normal())] * 2, mode=mode)

    assert "envs/envs/0/func: the function " in str(refusal.value)
    assert "binds rng, an object of class numpy:Generator, whose state a checkpoint would miss." in str(refusal.value)


def test_a_function_that_binds_a_number_is_compared_and_one_that_binds_none_goes_on(tmp_path: Path):
    def scaled(factor: float) -> list[Make]:
        return [rewards_by(lambda reward: factor * reward)] * 2

    def halved() -> list[Make]:
        return [lambda: wrappers.TransformReward(cartpole()(), lambda reward: 0.5 * float(reward))] * 2

    for name, factories in (("scaled", scaled(0.5)), ("halved", halved())):
        straight, _ = trained(tmp_path / name / "straight", factories)
        interrupted(tmp_path / name / "run", factories)
        if name == "scaled":
            found = refused(tmp_path / name / "run", scaled(0.25))
            places = [
                f"envs/envs/{index}/{place}/change/factor" for index in (0, 1) for place in ("arguments/func", "func")
            ]
            assert found == [f"{place}: 0.5 in the run, 0.25 here" for place in places]
        assert trained(tmp_path / name / "run", scaled(0.5) if name == "scaled" else halved())[0] == straight


def test_a_worker_that_dies(tmp_path: Path):
    """It is named with its exit code, and the training goes on from the boundary before, with new workers."""
    straight, _ = trained(tmp_path / "straight", [cartpole()] * 2, mode="async")

    def kill(envs: Any) -> None:
        if len(os.listdir(tmp_path / "run" / "checkpoints")) > 1:
            envs.processes[1].kill()
            envs.processes[1].join()

    with pytest.raises(WorkerDiedError) as death:
        trained(tmp_path / "run", [cartpole()] * 2, mode="async", log_fn=kill)

    assert str(death.value).startswith("environment 1: its worker process died (signal 9 killed it). Look at what it")
    assert (death.value.index, death.value.exit_code) == (1, -9)
    assert trained(tmp_path / "run", [cartpole()] * 2, mode="async")[0] == straight


class Quitting(gymnasium.Wrapper):
    """Ends its process in the tenth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 10:
            os._exit(3)
        return super().step(action)


def test_a_worker_that_ends_in_a_step(tmp_path: Path):
    with pytest.raises(WorkerDiedError, match=r"environment 1: its worker process died \(its exit code is 3\)\."):
        trained(tmp_path / "run", [cartpole(), lambda: Quitting(cartpole()())], mode="async")


class Walker(gymnasium.Env):
    """As many steps an episode as the level's file says."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pool: LevelPool) -> None:
        self.pool, self.left = pool, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(Path(self.pool.next()).read_text())
        return np.full(1, self.left, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.full(1, self.left, np.float32), float(action), self.left <= 0, False, {}


def walkers(folder: Path) -> list[Make]:
    pool = LevelPool(sorted(folder.glob("*.txt")), mode="random", seed=1)
    return [lambda index=index: Walker(pool.for_env(index)) for index in range(2)]


def test_a_level_that_was_changed_by_one_byte_and_a_folder_that_moved(tmp_path: Path):
    (tmp_path / "levels").mkdir()
    for length in (3, 5, 7):
        (tmp_path / "levels" / f"level{length}.txt").write_text(str(length))
    straight, _ = trained(tmp_path / "straight", walkers(tmp_path / "levels"))
    interrupted(tmp_path / "run", walkers(tmp_path / "levels"))
    shutil.copytree(tmp_path / "levels", tmp_path / "changed")
    (tmp_path / "changed" / "level5.txt").write_text("4")

    found = refused(tmp_path / "run", walkers(tmp_path / "changed"))

    assert [line.split(" ")[:2] for line in found] == [
        [f"envs/envs/{index}/pool/levels/1:", "level5.txt"] for index in (0, 1)
    ]
    shutil.move(tmp_path / "levels", tmp_path / "moved")
    assert trained(tmp_path / "run", walkers(tmp_path / "moved"))[0] == straight


def test_a_checkpoint_of_a_gpu_machine_goes_on_here_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run is made to say what one on a GPU would: its device, and that the networks were there."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(arithmetic, "_torch_device", lambda torch: "NVIDIA A100-SXM4-40GB")
        interrupted(tmp_path / "run", [cartpole()] * 2, config={"device": "cuda"})
    straight, _ = trained(tmp_path / "straight", [cartpole()] * 2)

    rows, notices = trained(tmp_path / "run", [cartpole()] * 2)

    assert rows == straight  # for it was a CPU in truth
    assert (
        "arithmetic changed: torch device: NVIDIA A100-SXM4-40GB then, cpu now. "
        "The last bits of results may differ from here on."
    ) in notices
