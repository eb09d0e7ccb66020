"""perdure's PPO, as a process: `python -m benchmarks.trainers.perdure_ppo mlp|lstm N_ENVS N_DEVICES CURVE [RUN]`."""

import sys

import jax

from benchmarks.trainers.center import Center
from benchmarks.trainers.paced import Paced


def main(kind: str, n_envs: int, n_devices: int, *, curve: bool, run: str | None) -> None:
    """Train until stdin ends; with a run, every iteration is a checkpoint."""
    if n_devices > 1:
        jax.config.update("jax_num_cpu_devices", n_devices)
    from perdure.nnx import EvalConfig, LoggingLevel, PPOConfig, TrainConfig, train_ppo

    level = LoggingLevel.LOSSES | LoggingLevel.TRAIN_ROLLOUT_STATS if curve else LoggingLevel.LOSSES
    ppo = PPOConfig(n_envs, 20, 10**12, learning_rate=1e-3, n_devices=n_devices, logging_level=level)
    config = TrainConfig(ppo, EvalConfig(enabled=False), checkpoint_every_steps=1)
    train_ppo(Center(), networks(kind), config, log_fn=Paced(), run=run)


def networks(kind: str):
    """Two hidden layers of 64, or an LSTM of 64 before one."""
    from flax import nnx

    from perdure.nnx import (
        LSTM,
        Normalizer,
        NormalTanhSampler,
        PPOAdapter,
        Sequential,
        make_mlp,
        make_mlp_actor_critic,
        make_mlp_layers,
    )

    rngs = nnx.Rngs(0)
    if kind == "mlp":
        return make_mlp_actor_critic(2, 2, [64, 64], [64, 64], rngs)
    head = make_mlp_layers([64, 64, 4], rngs, activation_last_layer=False)
    adapter = PPOAdapter(
        action=Sequential([*head, NormalTanhSampler(rngs)]),
        value=make_mlp([64, 64, 1], rngs, activation_last_layer=False),
    )
    return Sequential([Normalizer(2), LSTM(2, 64, rngs), adapter])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), curve=sys.argv[4] == "1", run=(sys.argv[5:] or [None])[0])
