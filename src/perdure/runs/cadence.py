"""Cadence: when a boundary is due for a checkpoint. A value that decides purely."""

import math
from dataclasses import dataclass

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError


@dataclass(frozen=True)
class Every:
    """Due whenever one of the given intervals has passed; with none given, never.

    Steps and updates count in multiples: `Every(env_steps=1000)` is due at the first boundary at or past 1000,
    2000, …, in an interrupted run as in an uninterrupted one. Minutes count since the last commit.
    """

    env_steps: int | None = None
    """Environment steps."""
    updates: int | None = None
    """Policy updates."""
    minutes: float | None = None
    """Wall-clock minutes."""

    def __post_init__(self) -> None:
        """Refuses intervals that are not positive."""
        for name, interval in vars(self).items():
            if interval is not None and not (interval > 0 and math.isfinite(interval)):
                raise UsageError(f"Every({name}={interval}): an interval is a positive number.")

    def is_due(self, before: Counters, now: Counters, seconds_since_commit: float) -> bool:
        """Whether the boundary `now`, which follows the boundary `before`, is due."""
        # Asked at every step of an off-policy loop.
        return (
            (self.env_steps is not None and before.env_steps // self.env_steps < now.env_steps // self.env_steps)
            or (self.updates is not None and before.updates // self.updates < now.updates // self.updates)
            or (self.minutes is not None and seconds_since_commit >= 60 * self.minutes)
        )

    def __str__(self) -> str:
        """The cadence as a sentence."""
        parts = [
            f"{interval:,} {name.replace('_', ' ')}" for name, interval in vars(self).items() if interval is not None
        ]
        return f"a checkpoint every {' or every '.join(parts)}" if parts else "no checkpoint but the first and the last"
