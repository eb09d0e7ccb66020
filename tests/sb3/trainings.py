"""Tiny trainings with Stable-Baselines3, of every algorithm: straight, stopped, resumed, or made to forget a part."""

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

import perdure
import perdure.sb3
from perdure.gym import Snapshot

FURTHER = 500
"""Environment steps after the last resume, at least."""


class TwoParts(gymnasium.Env):
    """Observations of two parts, infos that tell success, and episodes of random lengths."""

    observation_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Box(-9, 9, (3,)), "b": gymnasium.spaces.Box(-9, 9, (2,))}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        ended = bool(self.np_random.random() < 0.1)
        info = {"is_success": bool(self.np_random.random() < 0.5)} if ended else {}
        return self._seen(), float(action * self.np_random.random()), ended, False, info

    def _seen(self) -> Any:
        drawn = self.np_random.standard_normal(5).astype(np.float32)
        return {"a": drawn[:3], "b": drawn[3:]}


def envs_of(name: str | Callable[[], Any], number: int, *, apart: bool = False, **limits: int) -> VecEnv:
    """Environments in this process, or each in its own."""
    where: dict[str, Any] = {"vec_env_cls": DummyVecEnv}
    if apart:
        where = {"vec_env_cls": SubprocVecEnv, "wrapper_class": Snapshot, "vec_env_kwargs": {"start_method": "fork"}}
    return make_vec_env(name, number, env_kwargs=limits or None, **where)


SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 5, "device": "cpu"}
ON_POLICY: dict[str, Any] = {**SMALL, "n_steps": 32}
PPO_OPTIONS: dict[str, Any] = {**ON_POLICY, "batch_size": 32, "n_epochs": 2}
OFF_POLICY: dict[str, Any] = {**SMALL, "buffer_size": 300, "learning_starts": 80, "batch_size": 16, "train_freq": 4}
falling = partial(LinearSchedule, end_fraction=1.0)


def fresh(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Options of one model: it writes into `policy_kwargs`."""
    return {**copy.deepcopy(options), **more}


cartpole = partial(envs_of, "CartPole-v1")
pendulum = partial(envs_of, "Pendulum-v1", max_episode_steps=30)


def ppo() -> BaseAlgorithm:
    """Linear schedules of learning rate and clipping, normalised observations and rewards."""
    options = fresh(PPO_OPTIONS, learning_rate=falling(1e-2, 0.0), clip_range=falling(0.3, 0.05))
    return PPO("MlpPolicy", VecNormalize(cartpole(2), gamma=0.9), **options)


def ppo_sde() -> BaseAlgorithm:
    """State-dependent exploration."""
    return PPO("MlpPolicy", pendulum(2), use_sde=True, sde_sample_freq=5, **fresh(PPO_OPTIONS))


def ppo_apart() -> BaseAlgorithm:
    """Environments in processes of their own, inside VecNormalize."""
    return PPO("MlpPolicy", VecNormalize(pendulum(2, apart=True)), **fresh(PPO_OPTIONS))


def ppo_two_parts() -> BaseAlgorithm:
    """Observations of two parts, and a target of the divergence."""
    options = fresh(PPO_OPTIONS, n_steps=16, batch_size=16)
    return PPO("MultiInputPolicy", envs_of(TwoParts, 3), target_kl=0.01, **options)


def a2c() -> BaseAlgorithm:
    """As it is."""
    return A2C("MlpPolicy", cartpole(2), learning_rate=falling(7e-3, 0.0), **fresh(ON_POLICY, n_steps=16))


def a2c_sde() -> BaseAlgorithm:
    """State-dependent exploration, normalised."""
    return A2C("MlpPolicy", VecNormalize(pendulum(2)), use_sde=True, **fresh(ON_POLICY, n_steps=16))


def dqn() -> BaseAlgorithm:
    """Two environments; exploration that goes on falling; a target network that lags behind."""
    explores = {"exploration_fraction": 1.0, "target_update_interval": 150}
    return DQN("MlpPolicy", cartpole(2), learning_rate=falling(1e-2, 0.0), **fresh(OFF_POLICY, **explores))


def dqn_apart() -> BaseAlgorithm:
    """Three-step returns, environments in processes of their own, inside VecNormalize."""
    return DQN("MlpPolicy", VecNormalize(cartpole(2, apart=True)), n_steps=3, **fresh(OFF_POLICY))


def dqn_two_parts() -> BaseAlgorithm:
    """Observations of two parts."""
    return DQN("MultiInputPolicy", envs_of(TwoParts, 1), **fresh(OFF_POLICY))


def sac() -> BaseAlgorithm:
    """A coefficient of the entropy that is learned, normalised."""
    return SAC("MlpPolicy", VecNormalize(pendulum(1)), learning_rate=falling(3e-3, 0.0), **fresh(OFF_POLICY))


def sac_sde() -> BaseAlgorithm:
    """State-dependent exploration from the first step on."""
    return SAC("MlpPolicy", pendulum(1), use_sde=True, use_sde_at_warmup=True, sde_sample_freq=3, **fresh(OFF_POLICY))


def td3() -> BaseAlgorithm:
    """Two environments, noise with a memory, updates of the actor at every third."""
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.2))
    return TD3("MlpPolicy", pendulum(2), action_noise=noise, policy_delay=3, **fresh(OFF_POLICY))


def ddpg() -> BaseAlgorithm:
    """Whole episodes, a ring that lets the observations overlap."""
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
    ring = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    options = fresh(OFF_POLICY, train_freq=(1, "episode"), gradient_steps=4, **ring)
    return DDPG("MlpPolicy", envs_of("Pendulum-v1", 1, max_episode_steps=9), action_noise=noise, **options)


CASES: dict[str, tuple[Callable[[], BaseAlgorithm], int, int]] = {
    "ppo": (ppo, 1088, 8),
    "ppo-sde": (ppo_sde, 1088, 8),
    "ppo-apart": (ppo_apart, 1088, 8),
    "ppo-two-parts": (ppo_two_parts, 1056, 11),
    "a2c": (a2c, 1056, 16),
    "a2c-sde": (a2c_sde, 1056, 16),
    "dqn": (dqn, 1200, 85),
    "dqn-apart": (dqn_apart, 1200, 85),
    "dqn-two-parts": (dqn_two_parts, 1000, 120),
    "sac": (sac, 1000, 120),
    "sac-sde": (sac_sde, 1000, 120),
    "td3": (td3, 1200, 85),
    "ddpg": (ddpg, 1000, 52),
}
"""What makes the model, the total of steps, and the last boundary after which at least FURTHER steps follow."""


@contextmanager
def stopping_at(boundary: int | None) -> Iterator[None]:
    """Runs that are told to stop there, as `perdure prove` tells them."""
    told = {} if boundary is None else {"PERDURE_STOP_AT_BOUNDARY": str(boundary)}
    with patch.dict(os.environ, told):
        yield


def train(
    make: Callable[[], BaseAlgorithm],
    directory: Path,
    total: int,
    *,
    stop: int | None = None,
    run: type[perdure.Run] = perdure.Run,
    callbacks: Callable[[], Sequence[Any]] = list,
    **options: Any,
) -> BaseAlgorithm:
    """Trains a fresh model in a run's directory, on from where it stands there; a stop ends it without an exception."""
    model = make()
    with stopping_at(stop):
        opened = run(directory, horizon=total, every=perdure.Every(updates=10**9), chain=1)
    try:
        learn: dict[str, Any] = {"log_interval": 3, **options}
        model.learn(total, callback=[*callbacks(), perdure.sb3.callback(opened)], **learn)
    except perdure.Preempted:
        assert stop is not None
        assert opened.boundary_number == stop
    finally:
        if stop is not None and model.env is not None:
            model.env.close()
    return model


def exact_when_stopped(
    make: Callable[[], BaseAlgorithm], total: int, last: int, seed: str, directory: Path
) -> dict[str, bytes]:
    """Asserts that a training stopped after five boundaries by chance, up to `last`, equals the one never stopped.

    Compared are the digests of the state at each boundary, every row, and in the end all that can be seen without
    perdure.

    Returns:
        What the training that was never stopped has come to (`photograph`).
    """
    straight = photograph(train(make, directory / "straight", total))
    for boundary in sorted(random.Random(seed).sample(range(1, last + 1), 5)):
        train(make, directory / "stopped", total, stop=boundary)
    resumed = photograph(train(make, directory / "stopped", total))

    assert chain(directory / "stopped") == chain(directory / "straight")
    rows = [(directory / each / "metrics.jsonl").read_text() for each in ("stopped", "straight")]
    assert rows[0] == rows[1] != ""
    assert [part for part in straight if resumed.get(part) != straight[part]] == []
    assert resumed.keys() == straight.keys()
    assert further_steps(directory / "stopped") >= FURTHER
    return straight


def chain(directory: Path) -> list[str]:
    """The digests of the state at every boundary, a line each."""
    return (directory / "chain.jsonl").read_text().splitlines()


def photograph(model: BaseAlgorithm) -> dict[str, bytes]:
    """What a training has come to, read without perdure: numbers, generators, and what the environments do next.

    To be taken at once, for the generators are the process's. It closes the environments.
    """
    parts: dict[str, Any] = {f"policy {name}": value for name, value in model.policy.state_dict().items()}
    for at, optimizer in enumerate(_optimizers(model)):
        parts[f"optimizer {at}"] = [optimizer.state_dict()["state"], [g["lr"] for g in optimizer.param_groups]]
    for name in _KNOWN & vars(model).keys():
        parts[name] = getattr(model, name)
    parts["episodes"] = [(info["r"], info["l"]) for info in model.ep_info_buffer or ()]
    if (buffer := vars(model).get("replay_buffer")) is not None:
        held = vars(buffer)
        parts |= {f"replay {name}": value for name, value in held.items() if isinstance(value, np.ndarray | dict | int)}
    if getattr(model, "action_noise", None) is not None:
        noises = getattr(model.action_noise, "noises", [model.action_noise])
        parts["noise"] = [vars(each).get("noise_prev") for each in noises]
    parts["generators"] = [torch.get_rng_state(), np.random.get_state(legacy=False)["state"], random.getstate()]
    parts["next actions"] = [model.action_space.sample() for _ in range(3)]
    parts["next steps"] = _next_steps(model)
    assert model.env is not None
    model.env.close()
    return {name: _bytes(value) for name, value in parts.items()}


_KNOWN = frozenset(
    {
        *("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "_last_obs", "_last_original_obs"),
        *("_last_episode_starts", "_current_progress_remaining", "exploration_rate", "log_ent_coef"),
        *("ep_success_buffer", "_last_lstm_states"),
    }
)


def _optimizers(model: BaseAlgorithm) -> list[torch.optim.Optimizer]:
    held = [vars(model), *(vars(module) for module in model.policy.modules())]
    return [value for each in held for value in each.values() if isinstance(value, torch.optim.Optimizer)]


def _next_steps(model: BaseAlgorithm, steps: int = 40) -> list[Any]:
    assert model.env is not None
    model.action_space.seed(3)
    rows = []
    for _ in range(steps):
        actions = np.array([model.action_space.sample() for _ in range(model.n_envs)])
        rows.append(model.env.step(actions)[:3])
    return rows


def _bytes(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return b"".join(str(key).encode() + _bytes(part) for key, part in value.items())
    if isinstance(value, list | tuple) or hasattr(value, "maxlen"):
        return b"(" + b",".join(map(_bytes, value)) + b")"
    return repr(value).encode()


def forgetful(place: str) -> type[perdure.Run]:
    """A run whose resumes leave one attribute as a fresh start has it: `algorithm._last_obs`; none if it is empty."""
    component, *inner, last = place.split(".") if place else ("", "")

    class Forgets(perdure.Run):
        def restore(self, **components: Any) -> Any:
            owner = components.get(component)
            for name in inner:
                owner = getattr(owner, name)
            before = copy.deepcopy(getattr(owner, last)) if place else None
            restored = super().restore(**components)
            if self.resumed and place:
                setattr(owner, last, before)
            return restored

    return Forgets


def learned(model: BaseAlgorithm) -> bytes:
    """The numbers of the policy."""
    return _bytes(model.policy.state_dict())


def further_steps(directory: Path) -> int:
    """Environment steps that were taken after the last resume."""
    lines = [json.loads(line) for line in (directory / "lineage.jsonl").read_text().splitlines()]
    resumed = [line for line in lines if line["event"] == "resumed"][-1]
    return json.loads(chain(directory)[-1])["env_steps"] - resumed["env_steps"]
