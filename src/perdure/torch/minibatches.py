"""Minibatches: what was collected, shuffled and cut."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from perdure.torch.config import PPOConfig
from perdure.torch.loss import Taught
from perdure.torch.networks import Carry
from perdure.torch.state import Rollout


@dataclass(frozen=True)
class Minibatch:
    """Some of a rollout, without the axis of time but for an LSTM."""

    observations: Tensor
    """What the policy saw, shape (batch, …); for an LSTM (n_steps, environments, …)."""
    masks: Tensor | None
    """Which actions were legal."""
    actions: Tensor
    """What it did."""
    taught: Taught
    """What is to be learned."""
    starts: Tensor
    """Whether a step was the first of an episode; looked at with an LSTM only."""
    memory: Carry | None
    """Of the LSTM before the first step."""
    counts: Tensor | None
    """With an LSTM: which of the steps took their action, bool, shape (n_steps * environments,); None: all did."""


def minibatches_of(rollout: Rollout, config: PPOConfig, rng: np.random.Generator) -> Iterator[Minibatch]:
    """All epochs' minibatches but those whose steps all only reset; an epoch's draws are made when it begins."""
    if rollout.memory is not None:
        for _ in range(config.n_epochs):
            for chosen in np.split(rng.permutation(config.n_envs), config.n_minibatches):
                if rollout.counts is None or rollout.counts[:, chosen].any():
                    yield _of_environments(rollout, rollout.memory, torch.from_numpy(chosen))
        return
    fields = [rollout.observations, rollout.actions, torch.stack(_taught(rollout), -1)]
    flat = [field.flatten(0, 1) for field in (fields if rollout.masks is None else [*fields, rollout.masks])]
    usable = np.arange(config.steps_per_update) if rollout.counts is None else np.flatnonzero(rollout.counts)
    for _ in range(config.n_epochs):
        order = torch.from_numpy(rng.permutation(usable))
        shuffled = [field[order].tensor_split(config.n_minibatches) for field in flat]
        for observations, actions, taught, *masks in zip(*shuffled, strict=True):
            if len(actions):
                mask = masks[0] if masks else None
                yield Minibatch(observations, mask, actions, Taught(*taught.unbind(-1)), rollout.starts, None, None)


def _of_environments(rollout: Rollout, memory: Carry, chosen: Tensor) -> Minibatch:
    """Whole environments, for networks that must see their steps in order."""
    counts = None if rollout.counts is None else torch.from_numpy(rollout.counts)[:, chosen].flatten()

    def of_these(field: Tensor) -> Tensor:
        flat = field[:, chosen].flatten(0, 1)
        return flat if counts is None else flat[counts]

    return Minibatch(
        rollout.observations[:, chosen],
        None if rollout.masks is None else of_these(rollout.masks),
        of_these(rollout.actions),
        Taught(*map(of_these, _taught(rollout))),
        rollout.starts[:, chosen],
        (memory[0][chosen], memory[1][chosen]),
        counts,
    )


def _taught(rollout: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rollout.log_probs, rollout.values, rollout.advantages, rollout.returns
