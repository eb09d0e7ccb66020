"""Boundary-reset: a run resets its environments at each of its checkpoints, so that none of their state is needed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure.adapters.resettable import Resettable
from perdure.checkpoint.capture import Counters
from perdure.contract.config import Contract
from perdure.errors import UsageError
from perdure.runs.arguments import check_every, count
from perdure.runs.cadence import Every

_log = logging.getLogger("perdure")

KEY = "boundary_reset"
"""In the sections `env` and `seed` of the contract, and the name of the last reset's result after `restore`."""


@dataclass(frozen=True)
class BoundaryReset:
    """For environments whose state cannot be captured: `Run(..., boundary_reset=BoundaryReset(seed=1, every=…))`.

    Every run, stopped or not, resets its environments at each checkpoint, and checkpoints stand on the cadence alone. A
    resume is bit for bit the run that was never stopped and has the same cadence, if `reset(seed=…)` decides all that
    follows in an environment. What wrappers count across resets is saved.
    """

    seed: int
    """Of the resets: each environment gets a seed of its own from this, the boundary's number and its index."""
    every: Every
    """The cadence, in steps or updates. It decides what is learned, and is part of the contract."""
    name: str = "envs"
    """The component that is reset."""
    reset: Callable[[Any, list[int]], Any] | None = None
    """Resets the environments with a seed for each, and returns what `boundary` is to hand back. Default:
    `envs.reset(seed=seeds)`, of a single environment `envs.reset(seed=seed)`."""

    def __post_init__(self) -> None:
        """Refuses a cadence in minutes, and what is no seed."""
        count("BoundaryReset", "seed", self.seed)
        is_counted = isinstance(self.every, Every) and (self.every.env_steps or self.every.updates)
        if not is_counted or self.every.minutes is not None:
            problem = "the cadence decides what is learned: give it in env_steps or updates, not in minutes"
            raise UsageError(f"BoundaryReset: every={self.every!r}: {problem}.")

    def do(self, envs: Any, at: Counters) -> Any:
        """Resets the environments as every run does at this boundary."""
        seeds = seeds_of(self.seed, at.boundary, getattr(envs, "num_envs", 1))
        if self.reset is not None:
            return self.reset(envs, seeds)
        return envs.reset(seed=seeds if hasattr(envs, "num_envs") else seeds[0])


def seeds_of(seed: int, boundary: int, envs: int) -> list[int]:
    """The seeds of a reset, below 2^31, which every library takes.

    Args:
        seed: the run's.
        boundary: the boundary's number, which never repeats.
        envs: how many environments there are.
    """
    sequences: Sequence[np.random.SeedSequence] = [
        np.random.SeedSequence(seed, spawn_key=(boundary, index)) for index in range(envs)
    ]
    return [int(sequence.generate_state(1)[0] >> 1) for sequence in sequences]


class Resets:
    """What a run has to do with the resets of its environments; nothing, unless it was told to."""

    def __init__(self, terms: BoundaryReset | None) -> None:
        """Begins.

        Args:
            terms: how; None: not at all.

        Raises:
            UsageError: it is something else.
        """
        if terms is not None and not isinstance(terms, BoundaryReset):
            raise UsageError(f"boundary_reset={terms!r}: a BoundaryReset(seed=…, every=…).")
        self._terms = terms
        self._marked: Resettable | None = None

    @property
    def decide(self) -> bool:
        """Whether resets, and checkpoints with them, stand on the cadence and nowhere else."""
        return self._terms is not None

    def cadence(self, every: Every | None) -> Every:
        """When boundaries are saved.

        Raises:
            UsageError: two cadences, or one that is none.
        """
        if self._terms is None:
            return check_every(Every(minutes=10) if every is None else every)
        if every is not None:
            raise UsageError(f"every={every!r}: boundary_reset decides the cadence; leave one of them out.")
        return self._terms.every

    def into(self, contract: Contract) -> None:
        """Puts cadence and seed into a contract."""
        if self._terms is not None:
            contract.setdefault("env", {})[KEY] = f"a reset of {self._terms.name} at {self._terms.every}"
            contract.setdefault("seed", {})[KEY] = int(self._terms.seed)

    def check(self, components: Mapping[str, Any]) -> None:
        """Refuses components that lack the environments, or have the name of the result.

        Raises:
            UsageError: they do.
        """
        if self._terms is None:
            return
        if KEY in components:
            raise UsageError(f"restore: the name {KEY!r} is reserved; choose another.")
        if self._terms.name not in components:
            name = self._terms.name
            raise UsageError(f"restore: boundary_reset resets the component {name!r}: hand in {name}=….")

    def marked(self, components: dict[str, Any]) -> dict[str, Any]:
        """The components, with what stands for the environments in their place."""
        if self._terms is None or self._terms.name not in components:
            return components
        self._marked = Resettable(components[self._terms.name], on_cadence=True)
        return {**components, self._terms.name: self._marked}

    @property
    def on_cadence(self) -> bool:
        """Whether the next checkpoint stands where every run makes one."""
        return self._marked is not None and bool(self._marked.on_cadence)

    @on_cadence.setter
    def on_cadence(self, is_due: bool) -> None:
        if self._marked is not None:
            self._marked.on_cadence = is_due

    def begin(self, objects: dict[str, Any], at: Counters) -> dict[str, Any]:
        """The restored objects, with the environments themselves, and what their reset gave."""
        if self._terms is None or self._marked is None:
            return objects
        return {**objects, self._terms.name: self._marked.envs, KEY: self.reset(at)}

    def reset(self, at: Counters) -> Any:
        """Resets the environments as every run does at this boundary; returns what that gave."""
        return None if self._terms is None or self._marked is None else self._terms.do(self._marked.envs, at)

    def notices(self, place: str) -> list[str]:
        """What to tell of a resume: the end of a shorter run is no place where every run resets."""
        if self._marked is None or self.on_cadence:
            return []
        told = (
            "this checkpoint stands where a shorter run ended, not on the cadence: the environments are reset here, "
            "and would not be in a run that was never stopped."
        )
        _log.warning("%s: %s", place, told)
        return [told]
