"""nnx-ppo's PPO, as a process: `python -m benchmarks.trainers.nnx_ppo_ppo mlp|lstm N_ENVS CURVE`."""

import importlib
import sys
from typing import Any

from benchmarks.trainers.center import Center
from benchmarks.trainers.paced import Paced


def main(kind: str, n_envs: int, *, curve: bool) -> None:
    """Train until stdin ends."""
    ppo, config, types = (importlib.import_module(f"nnx_ppo.algorithms.{name}") for name in ("ppo", "config", "types"))
    level = types.LoggingLevel.LOSSES
    if curve:
        level |= types.LoggingLevel.TRAIN_ROLLOUT_STATS
    settings = config.TrainConfig(
        ppo=config.PPOConfig(
            n_envs=n_envs, rollout_length=20, total_steps=10**12, learning_rate=1e-3, logging_level=level
        ),
        eval=config.EvalConfig(enabled=False),
    )
    ppo.train_ppo(Center(), networks(kind), settings, log_fn=Paced())


def networks(kind: str) -> Any:
    """The same as in perdure_ppo."""
    from flax import nnx

    names = ("factories", "recurrent", "containers", "adapter", "sampling_layers", "normalizer")
    factories, recurrent, containers, adapter, sampling, normalizer = (
        importlib.import_module(f"nnx_ppo.networks.{name}") for name in names
    )
    rngs = nnx.Rngs(0)
    if kind == "mlp":
        return factories.make_mlp_actor_critic(2, 2, [64, 64], [64, 64], rngs)
    head = factories.make_mlp_layers([64, 64, 4], rngs, activation_last_layer=False)
    sampler = sampling.NormalTanhSampler(rngs, entropy_weight=1e-2, min_std=1e-1)
    pair = adapter.PPOAdapter(
        action=containers.Sequential([*head, sampler]),
        value=factories.make_mlp([64, 64, 1], rngs, activation_last_layer=False),
    )
    return containers.Sequential([normalizer.Normalizer(2), recurrent.LSTM(2, 64, rngs), pair])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), curve=sys.argv[3] == "1")
