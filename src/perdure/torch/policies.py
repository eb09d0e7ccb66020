"""Policies of PPO: networks rebuilt from what a policy says of its run, and evaluated."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import gymnasium
import numpy as np
import torch

from perdure import Policy
from perdure.gym import as_trained
from perdure.torch.actions import actions_of
from perdure.torch.config import PPOConfig, from_mapping
from perdure.torch.environments import Factory, factory_of, is_image
from perdure.torch.evaluation import play
from perdure.torch.launch import COMPONENT, NAME, options_of
from perdure.torch.networks import ActorCritic

_NETWORKS = "class perdure:ActorCritic"


def is_ours(policy: Policy) -> bool:
    """Whether the policy is that of a training by `perdure.torch`."""
    return COMPONENT in policy.components and policy.facts[COMPONENT].get(".") == _NETWORKS


def evaluate_policy(
    policy: Policy, env_id: str | Factory, *, episodes: int, seed: int, max_length: int
) -> dict[str, np.ndarray]:
    """Plays episodes with the most likely actions, in environments made for it, after everything was compared.

    Nothing is drawn from the process's generators.

    Args:
        policy: Of a training by `perdure.torch`.
        env_id: Gymnasium's id, or a function that makes one environment.
        episodes: How many, side by side.
        seed: Of the environments.
        max_length: Steps after which an episode is cut off; its return until then counts.

    Returns:
        `returns` (float64), `lengths` (int64) and `cut_off` (bool), one number an episode.

    Raises:
        PolicyMismatchError: The environment is another one than the run's.
        UsageError: The environment cannot be made, or the networks see statistics that the policy does not hold.
    """
    recorded = config_of(policy)
    config = replace(recorded, seed=seed, eval_episodes=episodes, eval_max_length=max_length, device="cpu")
    if config.wrappers == "normalize":  # observations by the policy's statistics, and rewards as they are
        config = replace(config, wrappers="none")
    make = factory_of(env_id, config) if isinstance(env_id, str) else env_id

    def factory() -> gymnasium.Env[Any, Any]:
        return as_trained(make(), policy)

    env = factory()
    try:
        is_named = "env_id" in policy.contract.get("env", {})
        policy.check(env=env, contract={"env": {"env_id": env_id}} if is_named else None)
        networks = build(env, config)
        actions = actions_of(env.action_space)
    finally:
        env.close()
    policy.load(networks=networks)
    returns, lengths, cut_off = play(networks, actions, factory, config, 0)
    return {"returns": returns, "lengths": lengths, "cut_off": cut_off}


def build(env: gymnasium.Env[Any, Any], config: PPOConfig) -> ActorCritic:
    """Networks for an environment, on the CPU, with weights that no generator of the process has drawn."""
    actions, space = actions_of(env.action_space), env.observation_space
    with torch.random.fork_rng(devices=[]):
        return ActorCritic(
            space.shape or (),
            actions.n_outputs,
            hidden_sizes=config.hidden_sizes,
            lstm_size=config.lstm_size,
            has_scale=actions.has_scale,
            is_image=is_image(space),
        )


def config_of(policy: Policy) -> PPOConfig:
    """The options of the training, as the policy's record or its contract tells them.

    Raises:
        UsageError: They are another version's.
    """
    if policy.launch is not None and policy.launch.get("name") == NAME:
        return options_of(policy.launch)[2]
    told: dict[str, Any] = {}
    for section in ("algorithm", "operational", "horizon", "seed"):
        told |= policy.contract.get(section, {})
    known = {field.name for field in fields(PPOConfig)}
    return from_mapping({**{key: value for key, value in told.items() if key in known}, **_listed(told, known)})


def _listed(told: Mapping[str, Any], known: set[str]) -> dict[str, list[Any]]:
    """Options that are lists, such as `hidden_sizes.0` and `hidden_sizes.1`."""
    lists: dict[str, list[Any]] = {}
    for key in sorted(told, key=lambda key: [int(part) if part.isdecimal() else 0 for part in key.split(".")]):
        match = re.fullmatch(r"(\w+)\.(\d+)", key)
        if match and match[1] in known:
            lists.setdefault(match[1], []).append(told[key])
    return lists
