"""The first leaf that differs: two checkpoints of the boundary at which two runs part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perdure.checkpoint.opening import Opened, open_checkpoint
from perdure.proof.evidence import Ignored, runs_in, stripped, stripped_snapshot
from perdure.runs.chain import read_whole_links
from perdure.runs.directory import RunDirectory, newest_first
from perdure.tree.diff import Difference, diff_snapshots

COUNTERS = ("env_steps", "updates", "boundary")


@dataclass(frozen=True)
class Located:
    """What differs at one boundary, leaf by leaf."""

    leaves: tuple[Difference, ...]
    """Every leaf that differs, in the order of the components' names."""
    boundary: int
    """Where these two states stand."""
    adapters: Mapping[str, str]
    """Component -> the adapter that captured it."""
    fidelity: Mapping[str, str]
    """Component -> its continuation class."""
    resembles: Mapping[str, int] = field(default_factory=dict)
    """Differing component -> an earlier boundary of the straight run at which it was the same."""


def locate(first: Path, second: Path, run: str, boundary: int, ignored: Ignored) -> Located | None:
    """Compares the checkpoints that two folders hold of one run at one boundary; None if they have none of there.

    Raises:
        DamagedError: a checkpoint is not what was written.
    """
    found = [runs_in(folder).get(run) for folder in (first, second)]
    opened = [checkpoint_at(place, boundary) for place in found if place is not None]
    a, b = [*opened, None, None][:2]
    if a is None or b is None:
        return None
    differences = diff_snapshots(*(stripped_snapshot(one.snapshot, ignored) for one in (a, b)))
    parts = a.snapshot.components
    return Located(
        tuple(sorted(differences, key=lambda difference: difference.path in COUNTERS)),
        boundary,
        {name: part.adapter for name, part in parts.items()},
        {name: part.fidelity for name, part in parts.items()},
    )


def checkpoint_at(run: RunDirectory, boundary: int) -> Opened | None:
    """The checkpoint of a boundary; only the newest few are looked at, for the others are gone or older.

    Raises:
        DamagedError: one is not what was written.
    """
    store = run.store()
    for name in newest_first(store.names()):
        opened = open_checkpoint(store, name)
        if opened.manifest.boundary <= boundary:
            return opened if opened.manifest.boundary == boundary else None
    return None


def resemblances(
    straight: Path, other: Path, run: str, boundary: int, components: Sequence[str], ignored: Ignored
) -> dict[str, int]:
    """Which components are at a boundary what they had been in the straight run earlier, and at which boundary."""
    folders = runs_in(straight), runs_in(other)
    if any(run not in runs for runs in folders):
        return {}
    before, after = (stripped(read_whole_links(runs[run].chain), ignored) for runs in folders)
    now = next((link.components for link in after if link.boundary == boundary), {})
    return {
        name: link.boundary
        for name in components
        for link in reversed(before)
        if link.boundary < boundary and name in now and link.components.get(name) == now[name]
    }
