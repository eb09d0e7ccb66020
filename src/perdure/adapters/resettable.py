"""Environments that a run resets at each of its checkpoints: what stands for them among the components."""

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Resettable:
    """An environment of which only that is state which no reset sets: what wrappers count, what spaces draw from."""

    envs: Any
    """The environment, or several as one."""
    on_cadence: bool | None = None
    """Of the outermost: whether the checkpoint stands on the run's cadence, so that every run resets there."""
