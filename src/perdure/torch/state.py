"""What a training holds: the state that a checkpoint keeps, and what one update collects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from perdure.torch.actions import Actions
from perdure.torch.config import PPOConfig
from perdure.torch.environments import Factory
from perdure.torch.networks import ActorCritic, Carry

LogFn = Callable[[dict[str, Any], int], None]
"""Called with an update's metrics (flat names, plain numbers) and the env-steps taken."""


@dataclass(frozen=True)
class Carried:
    """What one step of the environments hands to the next: NumPy arrays with leading axis `n_envs`."""

    observation: np.ndarray
    """What the policy sees next."""
    action_mask: np.ndarray | None
    """Which actions are legal next, if the environments say so; bool."""
    memory: tuple[np.ndarray, np.ndarray] | None
    """The LSTM's hidden and cell state, float32."""
    starts: np.ndarray
    """Whether the next step is the first of an episode; bool."""
    resets: np.ndarray
    """Whether the next step ignores the action and only resets (autoreset in the next step); bool."""
    returns: np.ndarray
    """Rewards of the present episodes so far, float64."""
    lengths: np.ndarray
    """Steps of the present episodes so far, int64."""


@dataclass
class TrainingState:
    """Everything that changes as the training goes on, and everything that a checkpoint holds."""

    networks: ActorCritic
    """Trained in place."""
    optimizer: torch.optim.Adam
    """Of the networks' parameters."""
    envs: VectorEnv[Any, Any, Any]
    """Stepped in place."""
    action_rng: np.random.Generator
    """Draws actions."""
    shuffle_rng: np.random.Generator
    """Draws minibatches."""
    carried: Carried
    """Between two steps of the environments."""
    env_steps: int = 0
    """Taken so far."""


@dataclass(frozen=True)
class Rollout:
    """What one update collects, tensors of shape (n_steps, n_envs, …)."""

    observations: Tensor
    """What the policy saw."""
    masks: Tensor | None
    """Which actions were legal."""
    actions: Tensor
    """What it did."""
    log_probs: Tensor
    """How likely that was."""
    values: Tensor
    """What the critic expected."""
    advantages: Tensor
    """By how much it went better."""
    returns: Tensor
    """What the critic should have expected."""
    starts: Tensor
    """Whether a step was the first of an episode."""
    counts: np.ndarray | None
    """Whether a step took its action; None: all did."""
    memory: Carry | None
    """Of the LSTM before the first step, shape (n_envs, size)."""


@dataclass(frozen=True)
class Task:
    """What does not change in a training."""

    config: PPOConfig
    """The options."""
    actions: Actions
    """How the policy acts."""
    mode: AutoresetMode
    """When the environments begin anew."""
    factory: Factory | None
    """Makes environments to evaluate in."""
    log_fn: LogFn | None
    """As in `train`."""
