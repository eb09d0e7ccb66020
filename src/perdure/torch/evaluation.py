"""Evaluation: episodes in environments of their own. Nothing of it can change the training."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import NormalizeObservation

from perdure import UsageError
from perdure.gym import make_vec
from perdure.torch.actions import Actions
from perdure.torch.config import PPOConfig
from perdure.torch.environments import MASK, Factory, masks_for, step
from perdure.torch.networks import ActorCritic


def check_evaluation(envs: VectorEnv[Any, Any, Any], factory: Factory | None, config: PPOConfig) -> None:
    """Refuses an evaluation that could not be had.

    Raises:
        UsageError: nothing makes environments for it, or their observations depend on what was seen in training.
    """
    if config.eval_every_steps is None:
        return
    if factory is None:
        raise UsageError("eval_every_steps: an evaluation makes environments of its own; hand in a function for one.")
    if any(_has_statistics(env) for env in getattr(envs, "envs", ())):
        raise UsageError(
            "eval_every_steps: NormalizeObservation would begin anew in each evaluation, and show the networks "
            "something else than in training. Leave evaluations out, or scale observations by fixed numbers."
        )


def _has_statistics(env: gymnasium.Env[Any, Any]) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, NormalizeObservation):
            return True
        env = env.env
    return False


def evaluate(
    networks: ActorCritic, actions: Actions, factory: Factory, config: PPOConfig, env_steps: int
) -> dict[str, Any]:
    """Plays one episode in each of `eval_episodes` environments that are made for it, with the most likely actions.

    What comes out depends on the networks, the seed and `env_steps` alone.

    Returns:
        Mean, least and greatest return and mean length. An episode counts up to `eval_max_length` steps.
    """
    returns, lengths, _ = play(networks, actions, factory, config, env_steps)
    return {
        "eval/return_mean": float(returns.mean()),
        "eval/return_min": float(returns.min()),
        "eval/return_max": float(returns.max()),
        "eval/length_mean": float(lengths.mean()),
    }


@torch.no_grad()
def play(
    networks: ActorCritic, actions: Actions, factory: Factory, config: PPOConfig, env_steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The episodes of `evaluate`, one by one.

    Returns:
        Returns, float64; lengths, int64; and which were cut off, bool: shape (`eval_episodes`,) each.
    """
    count = config.eval_episodes
    envs = make_vec([factory] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    seed = np.random.SeedSequence([config.seed, env_steps]).generate_state(1)[0]
    observation, info = envs.reset(seed=int(seed) >> 1)
    returns, lengths, running = np.zeros(count), np.zeros(count, np.int64), np.ones(count, bool)
    memory, starts = networks.empty_carry(count), np.ones(count, bool)
    is_masked = config.mask_actions and MASK in info
    while running.any() and lengths.max() < config.eval_max_length:
        row = torch.from_numpy(observation.astype(np.uint8 if networks.is_image else np.float32)).to(config.device)
        features = networks.encode(row)
        if memory is not None:
            memory = networks.remember(features, memory, torch.from_numpy(starts).to(config.device))
            features = memory[0]
        legal = torch.from_numpy(masks_for(actions, info, count)).to(config.device) if is_masked else None
        action = actions.best(networks.policy(features), legal).cpu().numpy()
        stepped = step(envs, actions.to_environment(action), AutoresetMode.SAME_STEP)
        observation, reward, terminated, truncated, _, info = stepped
        starts = terminated | truncated
        returns += reward * running
        lengths += running
        running &= ~starts
    envs.close()
    return returns, lengths, running
