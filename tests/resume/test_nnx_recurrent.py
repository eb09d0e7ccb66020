"""Recurrent, noisy and delayed networks resume exactly at every boundary; a lost carry is seen."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.nnx import (
    LSTM,
    AR1VariationalBottleneck,
    CategoricalSampler,
    Delay,
    Dense,
    EvalConfig,
    Normalizer,
    PPOAdapter,
    PPOConfig,
    Sequential,
    TrainConfig,
    train_ppo,
)
from perdure.nnx.envs.gymnax import GymnaxEnvironment
from perdure.runs.directory import RunDirectory
from perdure.tree.diff import diff_snapshots

pytestmark = [pytest.mark.jax, pytest.mark.full]

UPDATES = 5
PPO = PPOConfig(n_envs=4, rollout_length=10, n_epochs=2, n_minibatches=2, learning_rate=1e-2, weight_decay=1e-3)
ENV = GymnaxEnvironment("CartPole-v1", max_steps_in_episode=14)


def network(seed: int) -> Sequential:
    rngs = nnx.Rngs(seed)
    actor = Sequential(
        [
            Delay(jnp.zeros(4), 2),
            LSTM(4, 5, rngs, trainable_initial_state=True),
            Dense(5, 6, rngs),
            AR1VariationalBottleneck(3, rngs, kl_weight=1e-3, ar1_weight=1e-3),
            Dense(3, 2, rngs),
            CategoricalSampler(rngs),
        ]
    )
    return Sequential([Normalizer(4), PPOAdapter(action=actor, value=Sequential([Dense(4, 1, rngs)]))])


def config(updates: int, *, evaluates: bool) -> TrainConfig:
    steps = PPO.steps_per_iteration
    ppo = PPOConfig(**{**vars(PPO), "total_steps": updates * steps})
    return TrainConfig(ppo, EvalConfig(evaluates, every_steps=steps, n_envs=2, max_episode_length=14), seed=3)


class Forgetful(perdure.Run):
    """Gives the carries of a fresh start back instead of the saved ones."""

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        fresh = jax.tree.map(jnp.copy, components["network_states"])
        restored = super().restore(env_steps=env_steps, **components)
        restored.network_states = fresh if self.resumed else restored.network_states
        return restored


def train(
    path: Path, updates: int, *, seed: int = 0, evaluates: bool = False, kind: type[perdure.Run] = perdure.Run
) -> None:
    settings = config(updates, evaluates=evaluates)
    with kind(
        path,
        config=settings,
        horizon="ppo.total_steps",
        schedules="none",
        free=["eval.*"],
        every=perdure.Every(updates=1),
        keep=None,
    ) as run:
        train_ppo(ENV, network(seed), settings, run=run)


def states(path: Path) -> dict[str, Any]:
    store = RunDirectory(path).store()
    return {name: open_checkpoint(store, name).snapshot for name in store.names()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("straight") / "run"
    train(path, UPDATES)
    return states(path)


def differences(path: Path, straight: dict[str, Any]) -> list[str]:
    """Leaves that differ from the run never stopped; the process's own generators are none of the training's."""
    found = states(path)
    assert found.keys() == straight.keys()
    return [
        difference.path
        for name in found
        for difference in diff_snapshots(straight[name], found[name])
        if not difference.path.startswith("process_rng")
    ]


@pytest.mark.parametrize("at", range(UPDATES))
def test_a_resume_at_every_boundary_equals_the_run_never_stopped(at: int, tmp_path: Path, straight: dict[str, Any]):
    if at:
        train(tmp_path / "run", at)
    train(tmp_path / "run", UPDATES, seed=7 if at else 0)  # what a resumed run builds its networks from is no matter

    assert differences(tmp_path / "run", straight) == []


def test_evaluating_changes_nothing(tmp_path: Path, straight: dict[str, Any]):
    train(tmp_path / "run", UPDATES, evaluates=True)

    assert differences(tmp_path / "run", straight) == []


def test_twin_a_lost_carry_is_seen(tmp_path: Path, straight: dict[str, Any]):
    train(tmp_path / "run", 2)
    train(tmp_path / "run", UPDATES, kind=Forgetful)

    assert differences(tmp_path / "run", straight) != []


def test_the_carries_are_in_mid_episode_when_they_are_saved(straight: dict[str, Any]):
    """Else the twin above could not tell."""
    last = straight[max(straight)].components["network_states"].tree
    text = str(last)
    assert "keys" in text
    assert "idx" in text
