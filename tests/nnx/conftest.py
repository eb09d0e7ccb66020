"""Small networks, a transparent environment, and leaf-for-leaf comparison of training states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import (
    EnvState,
    EvalConfig,
    PPOConfig,
    StatefulModule,
    StatefulModuleOutput,
    TrainConfig,
    TrainingState,
    make_mlp_actor_critic,
)


@dataclass(frozen=True)
class Counting:
    """Counts steps up to `limit` from a start drawn below `starts`; pays 1 a step; says how it ends."""

    limit: int = 5
    starts: int = 3
    truncates: bool = False
    rewards: tuple[str, ...] = ()

    def reset(self, key: jax.Array, /) -> EnvState:
        return self._state(jax.random.randint(key, (), 0, self.starts), 0.0)

    def step(self, state: EnvState, action: Any, /) -> EnvState:
        return self._state(state.data + 1, 1.0)

    def _state(self, count: jax.Array, reward: float) -> EnvState:
        done = count >= self.limit
        one = jnp.asarray(reward, jnp.float32)
        return EnvState(
            data=count,
            obs=count.astype(jnp.float32)[None],
            reward=dict.fromkeys(self.rewards, one) or one,
            done=done,
            info={"truncation": done & self.truncates},
        )


class Memory(StatefulModule):
    """A carry that adds up what it saw, on top of a trainable scale."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.scale = nnx.Param(jnp.full((size,), 0.5))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        total = module_state + obs
        return StatefulModuleOutput(total, total * self.scale[...])

    def initialize_state(self, batch_size: int) -> jax.Array:
        return jnp.zeros((batch_size, self.size))

    def reset_state(self, prev_state: Any) -> Any:
        return jnp.zeros_like(prev_state)


def leaves_of(tree: Any) -> dict[str, tuple[str, bytes]]:
    """Path -> dtype, shape, weak type, raw bytes, of every leaf."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found[name] = (f"{leaf.dtype}{leaf.shape}{getattr(leaf, 'weak_type', False)}", data.tobytes())
    return found


def leaves_of_state(state: TrainingState) -> dict[str, tuple[str, bytes]]:
    """Everything that a training state consists of."""
    parts = {
        "networks": nnx.state(state.networks),
        "optimizer": nnx.state(state.optimizer),
        "network_states": state.network_states,
        "env_states": state.env_states,
        "rng_key": state.rng_key,
        "steps_taken": np.asarray(state.steps_taken),
    }
    return leaves_of(parts)


def small_networks(env: Any, seed: int = 0) -> StatefulModule:
    return make_mlp_actor_critic(
        env.obs_size, env.action.size, [8], [8], rngs=nnx.Rngs(seed), action_kind=env.action.kind
    )


def small_config(**changes: Any) -> TrainConfig:
    """Iterations of 32 env-steps, evaluated every other one."""
    settings: dict[str, Any] = {"n_envs": 4, "rollout_length": 8, "n_epochs": 2, "n_minibatches": 2}
    settings |= {"total_steps": 128, "learning_rate": 1e-3}
    return TrainConfig(
        ppo=PPOConfig(**settings), eval=EvalConfig(every_steps=64, n_envs=3, max_episode_length=50), **changes
    )


@pytest.fixture
def toys() -> Any:
    """The helpers above; test modules cannot import one another."""
    import types

    return types.SimpleNamespace(
        Counting=Counting,
        Memory=Memory,
        leaves_of=leaves_of,
        leaves_of_state=leaves_of_state,
        small_networks=small_networks,
        small_config=small_config,
    )
