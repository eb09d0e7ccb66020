"""Collecting: the environments are stepped, then the critic looks at everything at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from perdure.torch.acting import acting_of
from perdure.torch.config import PPOConfig
from perdure.torch.environments import masks_for, step
from perdure.torch.networks import Carry, to_numpy, to_tensors
from perdure.torch.state import Carried, Rollout, Task, TrainingState


@torch.no_grad()
def collect(task: Task, state: TrainingState) -> tuple[Rollout, dict[str, Any]]:
    """Steps the environments `n_steps` times, and estimates how much better than expected each action was.

    Raises:
        FloatingPointError: an observation or a reward is NaN or infinite.
        UsageError: a mask is missing, or forbids everything.
    """
    first_memory, rolling = state.carried.memory, _Rolling(task, state)
    for t in range(task.config.n_steps):
        rolling.step(t)
    check_finite(rolling.record)
    rollout = rolling.rollout(None if first_memory is None else to_tensors(first_memory, task.config.device))
    state.carried, metrics = rolling.carried(state.carried)
    return rollout, metrics


@dataclass
class _Record:
    """What the environments did in a rollout, NumPy arrays of shape (n_steps, n_envs, …), one row more where said."""

    observations: np.ndarray
    """One row more."""
    rewards: np.ndarray
    terminated: np.ndarray
    dones: np.ndarray
    """Whether a step ended an episode, for either reason."""
    starts: np.ndarray
    """Whether a step is the first of an episode; one row more."""
    resets: np.ndarray
    """Whether a step only reset; one row more."""

    @classmethod
    def after(cls, carried: Carried, n_steps: int) -> "_Record":
        """Empty but for what the step before has left."""
        shape = n_steps, *carried.starts.shape
        observations = np.empty((n_steps + 1, *carried.observation.shape), carried.observation.dtype)
        longer = np.zeros((n_steps + 1, *carried.starts.shape), bool)
        record = cls(observations, np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool), longer, longer.copy())
        observations[0], record.starts[0], record.resets[0] = carried.observation, carried.starts, carried.resets
        return record


class _Rolling:
    """A rollout under way."""

    def __init__(self, task: Task, state: TrainingState) -> None:
        config, self._task, self._state = task.config, task, state
        self.record, self._acting = _Record.after(state.carried, config.n_steps), acting_of(task, state)
        self._noise = task.actions.noise(state.action_rng, config.n_steps, config.n_envs)
        self._mask, self._waits = state.carried.action_mask, task.mode is AutoresetMode.NEXT_STEP
        self._legal: list[np.ndarray] = []
        self._finals: dict[tuple[int, int], Tensor] = {}

    def step(self, t: int) -> None:
        """Looks, acts, and writes down what comes of it."""
        record, task = self.record, self._task
        if self._mask is not None:
            self._legal.append(self._mask)
        actions = self._acting.act(record.observations[t], record.starts[t], self._noise[t], self._mask)
        actions = task.actions.to_environment(actions)
        observation, reward, terminated, truncated, final, info = step(self._state.envs, actions, task.mode)
        record.observations[t + 1], record.rewards[t], record.terminated[t] = observation, reward, terminated
        record.dones[t] = done = terminated | truncated
        record.starts[t + 1] = record.resets[t] if self._waits else done
        if self._waits:
            record.resets[t + 1] = done
        for index, last in final.items():
            self._finals[t, index] = self._acting.see_last(last, index)
        if self._mask is not None:
            self._mask = masks_for(task.actions, info, task.config.n_envs)

    def rollout(self, first_memory: Carry | None) -> Rollout:
        """What was collected, with log-probabilities, estimates and advantages."""
        record, task, n_steps, device = self.record, self._task, self._task.config.n_steps, self._task.config.device
        values, advantages = self._estimate()
        outputs, actions = self._acting.said()
        masks = torch.from_numpy(np.stack(self._legal)).to(device) if self._legal else None
        return Rollout(
            observations=torch.from_numpy(record.observations[:n_steps]).to(device),
            masks=masks,
            actions=actions,
            log_probs=task.actions.judge(outputs, actions, masks, self._state.networks.log_std)[0],
            values=values,
            advantages=advantages,
            returns=advantages + values,
            starts=torch.from_numpy(record.starts[:n_steps]).to(device),
            counts=~record.resets[:n_steps] if record.resets[:n_steps].any() else None,
            memory=first_memory,
        )

    def _estimate(self) -> tuple[Tensor, Tensor]:
        """The critic's estimates before each step, and advantages, shape (n_steps, n_envs) each."""
        record, config, networks = self.record, self._task.config, self._state.networks
        features = self._acting.features(record.observations, record.starts)
        values = networks.value(features).squeeze(-1).float().cpu().numpy()
        after = values[1:].copy()
        if self._finals:
            steps, indices = zip(*self._finals, strict=True)
            finals = networks.value(torch.stack([*self._finals.values()]))
            after[steps, indices] = finals.squeeze(-1).float().cpu().numpy()
        after[record.terminated] = 0
        advantages = advantages_of(record.rewards, values[:-1], after, record.dones, config)
        return torch.from_numpy(values[:-1]).to(config.device), torch.from_numpy(advantages).to(config.device)

    def carried(self, before: Carried) -> tuple[Carried, dict[str, Any]]:
        """What the next rollout begins with, and how the episodes went."""
        record, memory = self.record, self._acting.memory
        returns, lengths, metrics = _episodes(before, record)
        remembered = None if memory is None else to_numpy(memory)
        observation, starts, resets = (each[-1].copy() for each in (record.observations, record.starts, record.resets))
        return Carried(observation, self._mask, remembered, starts, resets, returns, lengths), metrics


def _episodes(carried: Carried, record: _Record) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns and lengths of the episodes under way, and means of those that ended."""
    returns, lengths, ended = carried.returns.copy(), carried.lengths.copy(), []
    begun = np.zeros(len(returns), np.int64)
    counted = ~record.resets
    for t, index in np.argwhere(record.dones):
        own = slice(begun[index], t + 1), index
        ended.append((returns[index] + record.rewards[own].sum(), lengths[index] + counted[own].sum()))
        returns[index], lengths[index], begun[index] = 0, 0, t + 1
    for index, first in enumerate(begun):
        returns[index] += record.rewards[first:, index].sum()
        lengths[index] += counted[first:-1, index].sum()
    metrics: dict[str, Any] = {"rollout/episodes": len(ended)}
    if ended:
        means = np.mean(ended, axis=0).tolist()
        metrics |= {"rollout/return_mean": means[0], "rollout/length_mean": means[1]}
    return returns, lengths, metrics


def advantages_of(
    rewards: np.ndarray, values: np.ndarray, after: np.ndarray, dones: np.ndarray, config: PPOConfig
) -> np.ndarray:
    """Generalised advantage estimates (arXiv:1506.02438, equation 16), float32, shape (n_steps, n_envs).

    Args:
        rewards: Of each step.
        values: Estimates before it.
        after: Estimates behind it, of the episode that it belongs to: 0 where that was terminated.
        dones: Whether it ended the episode, for either reason.
        config: The options.
    """
    surprises = rewards + config.gamma * after - values
    decay = config.gamma * config.gae_lambda * ~dones
    advantages, advantage = np.empty(rewards.shape, np.float32), np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        advantage = surprises[t] + decay[t] * advantage
        advantages[t] = advantage
    return advantages


def check_finite(record: _Record) -> None:
    """Names the first observation or reward from which nothing can be learned.

    Raises:
        FloatingPointError: one is NaN or infinite.
    """
    for what, values in (("observation", record.observations[1:]), ("reward", record.rewards)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            t, index = np.argwhere(~np.isfinite(values))[0][:2]
            raise FloatingPointError(
                f"environment {index} gave a {what} that is NaN or infinite, in step {t} of the rollout; nothing was "
                "learned from it."
            )
