"""Whether saved rows fit a ring of whatever kind."""

import numpy as np

from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.rows import Rows


def check_rows(ring: Rows, saved: Tree, walk: Walk, step: str, *, capacity: str) -> list[Finding]:
    """Findings where the rows are of other columns or another ring's.

    Args:
        ring: what the target holds.
        saved: the rows to restore.
        walk: stands at the target.
        step: where the rows stand below it.
        capacity: what the target calls its number of rows.
    """
    if not isinstance(saved, Rows):
        return [walk.finding(summary(saved), summary(ring), "Build it as the run did.", step)]
    findings = []
    if saved.capacity != ring.capacity:
        sizes = (f"{capacity} {saved.capacity:,}", f"{capacity} {ring.capacity:,}")
        findings.append(walk.finding(*sizes, f"Build it with the run's {capacity}: rows stand where they stood.", step))
    for name in sorted(saved.columns.keys() | ring.columns.keys()):
        kinds = [_kind(rows.columns.get(name)) for rows in (saved, ring)]
        if kinds[0] != kinds[1]:
            findings.append(walk.finding(*kinds, "Build it with the run's columns and environments.", step, name))
    return findings


def _kind(column: np.ndarray | None) -> str:
    return "no such column" if column is None else f"{column.dtype} {'×'.join(map(str, column.shape[1:])) or 'a row'}"
