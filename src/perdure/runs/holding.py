"""Holding: when a boundary that is not saved is kept in memory, so that a signal or a crash loses nothing of it."""

from dataclasses import dataclass

from perdure.format.nodes import large_leaves
from perdure.tree.leaves import Array, PRNGKey
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

SHARE = 0.01
"""Of the training's time, what holding may cost."""

MOST_BYTES = 256 << 20
"""Of arrays that must be copied. A larger state would take the memory of two training states more."""


@dataclass
class Budget:
    """Measures what holding costs, and allows it so often that it stays below `SHARE`."""

    cost_s: float = 0.0
    """What the last one cost."""
    held_at: float = float("-inf")
    """When it was done, in monotonic seconds."""
    is_spent: bool = False
    """Whether there is no more holding: boundaries that are no checkpoints are no places to go on from, or it is too
    large."""

    def allows(self, now: float) -> bool:
        """Whether another one, at the cost of the last, keeps within the share."""
        return not self.is_spent and (now - self.held_at) * SHARE >= self.cost_s

    def rules_out(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is too large to be held; then there is no more holding."""
        self.is_spent = is_too_large(snapshot)
        return self.is_spent

    def spend(self, started: float, ended: float) -> None:
        """Notes one that was done."""
        self.cost_s, self.held_at = ended - started, ended


def is_too_large(snapshot: Snapshot) -> bool:
    """Whether a snapshot holds more than may be copied: append-only rows, or many bytes that somebody could change."""
    size_bytes = 0
    for name, component in snapshot.components.items():
        for _, leaf in large_leaves(component.tree, (name,)):
            if isinstance(leaf, Rows):
                return True
            array = leaf.data if isinstance(leaf, PRNGKey) else leaf
            if isinstance(array, Array) and not array.immutable:
                size_bytes += array.value.nbytes
    return size_bytes > MOST_BYTES
