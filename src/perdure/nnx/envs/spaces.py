"""What environments take and give, whatever library they come from."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ActionSpec:
    """What actions an environment takes."""

    kind: Literal["discrete", "continuous"]
    """Discrete actions are int32 scalars in [0, size); continuous ones float32 `[size]` in [-1, 1]."""
    size: int
    """Number of discrete actions, or of continuous dimensions."""
