"""PPO with PyTorch on CartPole, by Stable-Baselines3 and by perdure, with the same hyper-parameters."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from perdure.torch import PPOConfig, train

THEIRS, OURS = "Stable-Baselines3", "perdure"
N_STEPS = 128
ENV = "CartPole-v1"
OnUpdate = Callable[[int, float | None], None]
"""Called after each update with the env-steps taken and the mean return of the episodes that ended in it."""


def config(updates: int, n_envs: int, n_minibatches: int, *, seed: int = 1) -> PPOConfig:
    """What both train with: two times two layers of 64, Adam at 2.5e-4, 4 epochs."""
    return PPOConfig(
        total_timesteps=updates * n_envs * N_STEPS,
        n_envs=n_envs,
        n_steps=N_STEPS,
        n_minibatches=n_minibatches,
        anneal_lr=False,
        seed=seed,
    )


def ours(options: PPOConfig, on_update: OnUpdate, run: Any = None) -> None:
    """Perdure's."""
    train(ENV, options, run=run, log_fn=lambda metrics, steps: on_update(steps, metrics.get("rollout/return_mean")))


def theirs(options: PPOConfig, on_update: OnUpdate) -> None:
    """Stable-Baselines3's, as it comes."""
    envs = make_vec_env(ENV, n_envs=options.n_envs, seed=options.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = PPO(
            "MlpPolicy",
            envs,
            learning_rate=options.learning_rate,
            n_steps=options.n_steps,
            batch_size=options.steps_per_update // options.n_minibatches,
            n_epochs=options.n_epochs,
            gamma=options.gamma,
            gae_lambda=options.gae_lambda,
            clip_range=options.clip_range,
            ent_coef=options.entropy_weight,
            vf_coef=options.value_weight,
            max_grad_norm=options.max_grad_norm or 0.5,
            policy_kwargs={"net_arch": {"pi": [*options.hidden_sizes], "vf": [*options.hidden_sizes]}},
            seed=options.seed,
            device="cpu",
        )
    trainer.learn(options.total_timesteps, callback=_Watch(on_update))


class _Watch(BaseCallback):
    """Tells when a rollout begins: the update before it is done then."""

    def __init__(self, on_update: OnUpdate) -> None:
        super().__init__()
        self._on_update = on_update
        self._returns: list[float] = []

    def _on_step(self) -> bool:
        self._returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_start(self) -> None:
        self._tell()

    def _on_training_end(self) -> None:
        self._tell()

    def _tell(self) -> None:
        if self.num_timesteps:
            mean = sum(self._returns) / len(self._returns) if self._returns else None
            self._on_update(self.num_timesteps, mean)
            self._returns = []


def stamps(trainer: Callable[[PPOConfig, OnUpdate], None], options: PPOConfig) -> list[float]:
    """When each update was done."""
    found: list[float] = []
    trainer(options, lambda _steps, _mean: found.append(time.perf_counter()))
    return found
