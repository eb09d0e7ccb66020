"""Seeds for the generators of spaces, which a seeded reset does not touch."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from perdure.gym.async_envs import AsyncVectorEnv
from perdure.gym.layers import seed_layers


def seed_spaces(envs: VectorEnv[Any, Any, Any] | gymnasium.Env[Any, Any], seed: int) -> None:
    """Seeds the generators of all spaces: of the batch, and of each environment and its wrappers, wherever they are.

    The system seeds them otherwise, where they are first drawn from: wrappers and environments that sample would then
    act differently in two runs of one seed, and what is saved would differ.

    Args:
        envs: environments of `make_vec`, Gymnasium's `SyncVectorEnv`, or wrappers around either; or one environment.
        seed: from 0; each space gets a seed of its own, derived from it.
    """
    if isinstance(envs, gymnasium.Env):
        seed_layers(envs, _derived(seed, 0))
        return
    for number, space in enumerate({id(space): space for space in _of_the_batch(envs)}.values()):
        space.seed(seed + number)
    bare = envs.unwrapped
    seeds = [_derived(seed, index) for index in range(envs.num_envs)]
    if isinstance(bare, AsyncVectorEnv):
        bare.seed_spaces(seeds)
    for env, own in zip(getattr(bare, "envs", ()), seeds, strict=False):  # none where it is elsewhere, or one batch
        seed_layers(env, own)


def _of_the_batch(envs: VectorEnv[Any, Any, Any]) -> Iterator[gymnasium.Space[Any]]:
    """Of the vector and of each wrapper around it."""
    yield from (envs.action_space, envs.observation_space, envs.single_action_space, envs.single_observation_space)
    if isinstance(envs, VectorWrapper):
        yield from _of_the_batch(envs.env)


def _derived(seed: int, index: int) -> int:
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) >> 1
