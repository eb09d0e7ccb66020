"""Optimizers' state that was there at the commit before and is gone: lost, and found before it is saved."""

from collections.abc import Iterator

from perdure.errors import CaptureError
from perdure.tree.paths import Path, format_path
from perdure.tree.snapshot import Snapshot

OPTIMIZER, STATE = "torch-optimizer", "state"
"""The adapter's id, and the part of its tree that holds what an optimizer keeps for its parameters."""


def optimizers_with_state(snapshot: Snapshot) -> frozenset[Path]:
    """Where in a snapshot PyTorch's optimizers stand that hold state for some parameter."""
    return frozenset(path for path, has_state in _optimizers(snapshot) if has_state)


def refuse_emptied(snapshot: Snapshot, before: frozenset[Path]) -> None:
    """Refuses a snapshot in which an optimizer that held state `before` holds none.

    One snapshot alone cannot tell: an Adam that has not stepped yet, in a warm-up, is as empty as one that lost its
    moments.

    Raises:
        CaptureError: there is one.
    """
    for path, has_state in _optimizers(snapshot):
        if path in before and not has_state:
            problem = "this optimizer held state at the last checkpoint and holds none now: it was lost"
            advice = "If it is meant to begin anew, let it make a step before the boundary"
            raise CaptureError(f"{format_path(path)}: {problem}. {advice}; else do not clear optimizer.state.")


def _optimizers(snapshot: Snapshot) -> Iterator[tuple[Path, bool]]:
    for component in snapshot.components.values():
        for path, adapter in component.made.items():
            if adapter == OPTIMIZER:
                yield path, bool(snapshot.at((*path, STATE)))
