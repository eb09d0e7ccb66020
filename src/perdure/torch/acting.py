"""The policy in a rollout: parameters that do not change, and a memory that does.

There are two kinds of it. PyTorch takes any networks. Dense towers before a few environments are done by NumPy on the
parameters' own memory: PyTorch takes 30 µs a step for that, NumPy 10, and a rollout is made of such steps.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from perdure.torch.by_hand import is_plain
from perdure.torch.networks import Carry, to_tensors
from perdure.torch.state import Task, TrainingState

LARGEST_PRODUCT = 1 << 18
"""Multiplications of a matrix product that OpenBLAS, behind NumPy, still does in one thread: beyond, the number of its
threads would decide how sums are rounded, which no option of the training says."""


class Acting(Protocol):
    """Acts in one rollout; called by step after step."""

    memory: Carry | None
    """Of the LSTM now; None without."""

    def act(
        self, observations: np.ndarray, starts: np.ndarray, noise: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray:
        """Actions after the next observations, as `Actions.sample` gives them; the memory takes note."""
        ...

    def see_last(self, observation: np.ndarray, index: int) -> Tensor:
        """Features of the last observation of a truncated episode of one environment; nothing is noted."""
        ...

    def said(self) -> tuple[Tensor, Tensor]:
        """The policy's outputs and the actions of all steps so far, shape (n_steps, n_envs, …) each."""
        ...

    def features(self, observations: np.ndarray, starts: np.ndarray) -> Tensor:
        """What the critic stands upon, of all steps so far and of the observations behind them; nothing is noted."""
        ...


def acting_of(task: Task, state: TrainingState) -> Acting:
    """The fastest that takes these networks and so many environments."""
    largest = max(parameter.numel() for parameter in state.networks.parameters())
    if is_plain(state.networks, task.config.device) and task.config.n_envs * largest <= LARGEST_PRODUCT:
        return ByNumPy(task, state)
    return ByTorch(task, state)


class ByTorch:
    """Any networks, on any device."""

    def __init__(self, task: Task, state: TrainingState) -> None:
        """From where the rollout before has ended."""
        self._networks, self._device, carried = state.networks, task.config.device, state.carried
        self._policy, self._log_std = state.networks.policy.frozen(), state.networks.log_std
        self._sample = task.actions.sample
        self.memory = None if carried.memory is None else to_tensors(carried.memory, self._device)
        self._seen: list[Tensor] = []
        self._said: list[tuple[Tensor, Tensor]] = []

    def act(
        self, observations: np.ndarray, starts: np.ndarray, noise: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray:
        """Looks, remembers, and draws."""
        features = self._see(observations, starts)
        outputs = self._policy(features)
        legal = None if mask is None else torch.from_numpy(mask).to(self._device)
        actions = self._sample(outputs, torch.from_numpy(noise).to(self._device), legal, self._log_std)
        self._seen.append(features)
        self._said.append((outputs, actions))
        return actions.cpu().numpy()

    def _see(self, observations: np.ndarray, starts: np.ndarray) -> Tensor:
        features = self._networks.encode(torch.from_numpy(observations).to(self._device))
        if self.memory is None:
            return features
        self.memory = self._networks.remember(features, self.memory, torch.from_numpy(starts).to(self._device))
        return self.memory[0]

    def see_last(self, observation: np.ndarray, index: int) -> Tensor:
        """With the memory of that environment."""
        row = torch.from_numpy(observation[None].astype(np.uint8 if self._networks.is_image else np.float32))
        features = self._networks.encode(row.to(self._device))
        if self.memory is None:
            return features[0]
        own = self.memory[0][index : index + 1], self.memory[1][index : index + 1]
        return self._networks.remember(features, own, torch.zeros(1, dtype=torch.bool, device=self._device))[0][0]

    def said(self) -> tuple[Tensor, Tensor]:
        """As they were said."""
        outputs, actions = (torch.stack(parts) for parts in zip(*self._said, strict=True))
        return outputs, actions

    def features(self, observations: np.ndarray, starts: np.ndarray) -> Tensor:
        """Those that were seen, and one look more."""
        memory = self.memory
        behind = self._see(observations[-1], starts[-1])
        self.memory = memory
        return torch.stack([*self._seen, behind])


class ByNumPy:
    """Two dense towers, of which the actor is done here, on views of its parameters."""

    def __init__(self, task: Task, state: TrainingState) -> None:
        """Of a training."""
        self.memory: Carry | None = None
        networks = state.networks
        self._layers = [
            (each.weight.detach().numpy().T, each.bias.detach().numpy()) for each in networks.policy.linear()
        ]
        self._n_active = networks.policy.n_active
        self._log_std = None if networks.log_std is None else networks.log_std.detach().numpy()
        self._draw = task.actions.draw
        self._said: list[tuple[np.ndarray, np.ndarray]] = []

    def act(
        self, observations: np.ndarray, starts: np.ndarray, noise: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray:
        """Three operations a layer."""
        values = observations.reshape(len(observations), -1)
        with np.errstate(all="ignore"):  # infinite observations are found when the rollout is complete
            for number, (weight, bias) in enumerate(self._layers):
                values = np.dot(values, weight)
                values += bias
                if number < self._n_active:
                    np.tanh(values, out=values)
        actions = self._draw(values, noise, mask, self._log_std)
        self._said.append((values, actions))
        return actions

    def see_last(self, observation: np.ndarray, index: int) -> Tensor:
        """As it is."""
        return torch.from_numpy(observation.astype(np.float32).reshape(-1))

    def said(self) -> tuple[Tensor, Tensor]:
        """As they were said."""
        outputs, actions = (torch.from_numpy(np.stack(parts)) for parts in zip(*self._said, strict=True))
        return outputs, actions

    def features(self, observations: np.ndarray, starts: np.ndarray) -> Tensor:
        """The observations."""
        return torch.from_numpy(observations).flatten(2)
