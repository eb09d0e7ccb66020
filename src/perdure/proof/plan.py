"""What a proof does: how far it goes, and where it interrupts."""

import random
from dataclasses import dataclass

from perdure.errors import UsageError

DEFAULT_UNTIL = 8


@dataclass(frozen=True)
class Plan:
    """How far, and where to interrupt."""

    until: int = DEFAULT_UNTIL
    """The boundary that runs go to."""
    at: int | None = None
    """The one boundary after which to interrupt; None: in the middle."""
    every: bool = False
    """Interrupt after each boundary in turn."""
    random: int | None = None
    """Interrupt after so many random boundaries."""
    kill: bool = False
    """Kill at a random instant after the boundary instead of stopping at it."""
    seed: int = 0
    """Of what is random."""

    def __post_init__(self) -> None:
        """Refuses what cannot be done."""
        if sum([self.at is not None, self.every, self.random is not None]) > 1:
            raise UsageError("--at, --every and --random say different things; give one of them.")
        if self.until < 2:
            raise UsageError(f"--until {self.until}: from 2; there must be a boundary to interrupt at before it.")
        if self.at is not None and not 1 <= self.at < self.until:
            raise UsageError(f"--at {self.at}: from 1 to {self.until - 1}, before the last boundary (--until).")
        if self.random is not None and self.random < 1:
            raise UsageError(f"--random {self.random}: from 1.")

    def stops(self, end: int) -> tuple[int, ...]:
        """The boundaries after which to interrupt a run that ends at boundary `end`.

        Raises:
            UsageError: there is none before the end.
        """
        if end < 2:
            raise UsageError(
                f"the script ends at boundary {end}: there is nothing to interrupt before it. Train longer."
            )
        if self.at is not None and self.at >= end:
            raise UsageError(f"--at {self.at}: the script ends at boundary {end} by itself; interrupt before it.")
        between = range(1, end)
        if self.every:
            return tuple(between)
        if self.random is not None:
            chosen = random.Random(self.seed).sample(between, min(self.random, len(between)))
            return tuple(sorted(chosen))
        return (end // 2 if self.at is None else self.at,)
