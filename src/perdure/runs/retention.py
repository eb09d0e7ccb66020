"""Retention: which checkpoints stay. A value that decides purely and reads as a sentence."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perdure.errors import UsageError


@dataclass(frozen=True)
class Candidate:
    """A committed checkpoint as retention sees it."""

    name: str
    """Its name in the store."""
    env_steps: int
    """Its env-steps."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The numbers among its boundary's metrics."""
    pinned: bool = False
    """Whether the user said that it stays."""


Order = Literal["max", "min"]


@dataclass(frozen=True)
class Ranking:
    """What makes one checkpoint better than another."""

    metric: str
    """A name among the boundary's metrics."""
    mode: Order = "max"
    """Whether a greater or a smaller one is better."""

    def best_first(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that have the score, the best first; of equal ones the newer, and no NaN."""
        sign = 1 if self.mode == "max" else -1
        scored = [(sign * c.scores.get(self.metric, math.nan), c.env_steps, c.name, c) for c in candidates]
        there = (entry for entry in scored if entry[0] == entry[0])  # a NaN equals nothing
        return [candidate for *_, candidate in sorted(there, key=lambda entry: entry[:3], reverse=True)]

    def __str__(self) -> str:
        """The metric and the mode."""
        return f"{self.metric} ({self.mode})"


@dataclass(frozen=True)
class Keep:
    """Keeps the union of what its fields ask for; join several with `|`.

    The newest checkpoint and pinned ones always stay. Whatever else no rule names is removed, after a newer one was
    committed.
    """

    last: int | None = None
    """The newest so many."""
    every: int | None = None
    """The first at or past each multiple of so many env-steps."""
    best: int | None = None
    """The best so many by `metric`; of equal ones the newer."""
    metric: str | None = None
    """A name among the boundary's metrics."""
    mode: Order = "max"
    """Whether a greater or a smaller metric is better."""
    full_every: int | None = None
    """Every so-manieth commit shares no file with the one before, so that damage to one file cannot cost all."""

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        for name in ("last", "every", "best", "full_every"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 1):
                raise UsageError(f"Keep({name}={number!r}): a whole number from 1.")
        if (self.best is None) != (self.metric is None):
            raise UsageError("Keep: best=… and metric=… go together: Keep(best=1, metric='return').")
        if self.mode not in ("max", "min"):
            raise UsageError(f"Keep(mode={self.mode!r}): 'max' or 'min'.")

    def __or__(self, other: "Keep | KeepAny") -> "KeepAny":
        return KeepAny((self,)) | other

    def reasons(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Name of each checkpoint that stays -> why."""
        ordered = sorted(candidates, key=lambda candidate: candidate.env_steps)
        reasons = dict.fromkeys(self._best(ordered), f"one of the best {self.best} by {self.metric}")
        reasons |= dict.fromkeys(self._spaced(ordered), f"the first at or past a multiple of {self.every} env-steps")
        newest = [candidate.name for candidate in ordered[-(self.last or 1) :]]
        reasons |= dict.fromkeys(newest, f"one of the last {self.last}" if self.last else "the newest")
        return reasons | {candidate.name: "pinned" for candidate in ordered if candidate.pinned}

    def _spaced(self, ordered: Sequence[Candidate]) -> list[str]:
        if self.every is None:
            return []
        first: dict[int, str] = {}
        for candidate in ordered:
            first.setdefault(candidate.env_steps // self.every, candidate.name)
        return list(first.values())

    def _best(self, ordered: Sequence[Candidate]) -> list[str]:
        return [candidate.name for each in self.rankings for candidate in each.best_first(ordered)[: self.best]]

    @property
    def rankings(self) -> tuple[Ranking, ...]:
        """What it calls best; none if it ranks nothing."""
        return () if self.best is None or self.metric is None else (Ranking(self.metric, self.mode),)

    def __str__(self) -> str:
        """The policy as a sentence."""
        parts = [
            f"the last {self.last}" if self.last else "",
            f"one every {self.every:,} env-steps" if self.every else "",
            f"the best {self.best} by {self.metric} ({self.mode})" if self.best else "",
        ]
        kept = " and ".join(filter(None, parts)) or "only the newest"
        full = f"; every {self.full_every}. shares no file" if self.full_every else ""
        return f"keep {kept}{full}"


@dataclass(frozen=True)
class KeepAny:
    """What any of several policies keeps."""

    policies: tuple[Keep, ...]
    """The policies."""

    def __or__(self, other: "Keep | KeepAny") -> "KeepAny":
        return KeepAny(self.policies + (other.policies if isinstance(other, KeepAny) else (other,)))

    @property
    def full_every(self) -> int | None:
        """The smallest of the policies' own."""
        return min((policy.full_every for policy in self.policies if policy.full_every), default=None)

    @property
    def rankings(self) -> tuple[Ranking, ...]:
        """What the policies call best, each once."""
        return tuple(dict.fromkeys(ranking for policy in self.policies for ranking in policy.rankings))

    def reasons(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Name of each checkpoint that stays -> the first policy's reason."""
        reasons: dict[str, str] = {}
        for policy in reversed(self.policies):
            reasons |= policy.reasons(candidates)
        return reasons

    def __str__(self) -> str:
        """The policies as one sentence."""
        return "; ".join(map(str, self.policies))
