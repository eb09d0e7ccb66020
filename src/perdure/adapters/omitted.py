"""Components that a run leaves out of its checkpoints: what stands for them."""

from dataclasses import dataclass
from typing import Any

ADAPTER = "omitted"
"""The id of the adapter of what stands for them."""


@dataclass(eq=False)
class Omitted:
    """A component of which nothing is saved: a resume goes on with it as it is then."""

    component: Any
    """The component itself."""
