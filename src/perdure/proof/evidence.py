"""What the processes of a proof left behind, and whether two such folders hold the same runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.checkpoint.opening import Opened
from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.state_digest import state_digest
from perdure.runs.chain import ChainDifference, Link, compare_chains, read_chain, read_whole_links
from perdure.runs.directory import RunDirectory
from perdure.runs.loading import newest_intact
from perdure.tree.leaves import Alias, leaves
from perdure.tree.snapshot import Snapshot

Ignored = frozenset[str]
"""Process-wide generators that are not compared: `process_rng/numpy`."""


OTHER_RUN = "only one of the two opened this run"
METRIC_ROWS = "their metric rows differ"
ENDS = "one ends at boundary {}, the other at {}"


@dataclass(frozen=True)
class Parting:
    """Where two runs stop being the same."""

    run: str
    """The run's name in its folder."""
    what: str
    """What differs, in words; empty where `difference` says it."""
    difference: ChainDifference | None = None
    """By their chains."""


@dataclass(frozen=True)
class Compared:
    """How much was compared, and was equal."""

    runs: tuple[str, ...]
    """Names of the runs."""
    boundaries: int
    """Boundaries of all of them."""
    leaves: int
    """Leaves of their last checkpoints."""
    rows: int
    """Metric rows."""


def runs_in(scratch: Path) -> dict[str, RunDirectory]:
    """The runs in a folder, by name."""
    folders = sorted(scratch.iterdir()) if scratch.is_dir() else []
    runs = {folder.name: RunDirectory(folder) for folder in folders}
    return {name: run for name, run in runs.items() if run.record.exists()}


def reach(scratch: Path) -> int:
    """The last boundary that any run in a folder has come to; -1 if there is none."""
    links = (read_whole_links(run.chain) for run in runs_in(scratch).values())
    return max((chain[-1].boundary for chain in links if chain), default=-1)


def never_drawn(scratches: Iterable[Path]) -> Ignored:
    """The process-wide generators that nobody seeds and nobody draws from, in all runs of these folders."""
    return left_alone([read_chain(run.chain) for scratch in scratches for run in runs_in(scratch).values()])


def left_alone(chains: Sequence[Sequence[Link]]) -> Ignored:
    """The process-wide generators (`process_rng/numpy`) that differ from chain to chain, and stay as they are in each.

    Most scripts never draw from some of them, and leave them as the operating system's entropy has them: that runs
    differ in that says nothing about them.
    """
    libraries = {library for chain in chains for link in chain for library in link.generators}
    return frozenset(f"{PROCESS_RNG}/{library}" for library in libraries if _is_left_alone(library, chains))


def _is_left_alone(library: str, chains: Sequence[Sequence[Link]]) -> bool:
    digests = [{link.generators.get(library) for link in chain} for chain in chains]
    return all(len(found) == 1 for found in digests) and len(set().union(*digests)) > 1


def compare_folders(first: Path, second: Path, ignored: Ignored) -> Parting | Compared:
    """Compares all runs of two folders: chains, last checkpoints, metric rows.

    Raises:
        DamagedError: a chain, a checkpoint or the rows of a run are not what was written.
        NothingToLoadError: a run has no checkpoint.
    """
    a, b = runs_in(first), runs_in(second)
    if lone := sorted(a.keys() ^ b.keys()):
        return Parting(lone[0], OTHER_RUN)
    totals = [0, 0, 0]
    for name in a:
        outcome = _compare_runs(name, a[name], b[name], ignored)
        if isinstance(outcome, Parting):
            return outcome
        totals = [total + part for total, part in zip(totals, outcome, strict=True)]
    return Compared(tuple(a), *totals)


def _compare_runs(name: str, a: RunDirectory, b: RunDirectory, ignored: Ignored) -> Parting | tuple[int, int, int]:
    chains = [stripped(read_chain(run.chain), ignored) for run in (a, b)]
    comparison = compare_chains(*chains)
    if comparison.difference is not None:
        return Parting(name, "", comparison.difference)
    ends = [chain[-1].boundary if chain else -1 for chain in chains]
    if ends[0] != ends[1] or not comparison.identical:
        return Parting(name, ENDS.format(*ends))
    opened = [newest(run) for run in (a, b)]
    if opened[0].name != opened[1].name:  # a script that ends without `finish` keeps what its cadence has saved
        rows = [run.metrics.read_bytes().splitlines() if run.metrics.exists() else [] for run in (a, b)]
        return Parting(name, METRIC_ROWS) if rows[0] != rows[1] else (comparison.compared, 0, len(rows[0]))
    # Process-wide generators were compared by the last link, each.
    kept = [{part: digest for part, digest in one.digests.items() if part != PROCESS_RNG} for one in opened]
    if kept[0] != kept[1]:
        return Parting(name, f"their last checkpoints ({opened[0].name}) differ")
    rows = [_rows(run, one) for run, one in zip((a, b), opened, strict=True)]
    if rows[0] != rows[1]:
        return Parting(name, METRIC_ROWS)
    return comparison.compared, _count_leaves(opened[0], ignored), len(rows[0])


def first_parting(first: Path, second: Path, ignored: Ignored) -> Parting | None:
    """Where the runs that two folders share differ, up to where the shorter ones end; None: nowhere."""
    a, b = runs_in(first), runs_in(second)
    for name in a.keys() & b.keys():
        chains = [stripped(read_chain(run.chain), ignored) for run in (a[name], b[name])]
        if difference := compare_chains(*chains).difference:
            return Parting(name, "", difference)
    return None


def stripped(chain: Sequence[Link], ignored: Ignored) -> list[Link]:
    """A chain without some of the process-wide generators."""
    return [_stripped(link, ignored) for link in chain] if ignored else list(chain)


def _stripped(link: Link, ignored: Ignored) -> Link:
    kept = {library: d for library, d in link.generators.items() if f"{PROCESS_RNG}/{library}" not in ignored}
    components = {name: digest for name, digest in link.components.items() if name != PROCESS_RNG}
    if kept:
        components[PROCESS_RNG] = digest_of(canonical.encode(kept))
    state = state_digest(components, link.env_steps, link.updates, link.boundary)
    return replace(link, components=components, state=state)


def stripped_snapshot(snapshot: Snapshot, ignored: Ignored) -> Snapshot:
    """A state without some of the process-wide generators."""
    part = snapshot.components.get(PROCESS_RNG)
    if part is None or not isinstance(part.tree, dict):
        return snapshot
    kept = {library: tree for library, tree in part.tree.items() if f"{PROCESS_RNG}/{library}" not in ignored}
    return replace(snapshot, components={**snapshot.components, PROCESS_RNG: replace(part, tree=kept)})


def newest(run: RunDirectory) -> Opened:
    """The last checkpoint of a run, verified.

    Raises:
        DamagedError: it is not what was written.
        NothingToLoadError: there is none.
    """
    return newest_intact(run.store(), str(run.path), strict=True).opened


def _rows(run: RunDirectory, opened: Opened) -> list[bytes]:
    mark = opened.manifest.metrics
    if mark is None:
        return []
    counted = run.metrics.read_bytes()[: mark["offset"]] if run.metrics.exists() else b""
    if digest_of(counted) != mark["digest"]:
        raise DamagedError(f"{run.metrics}: not the rows that {opened.name} counted")
    return counted.splitlines()


def _count_leaves(opened: Opened, ignored: Ignored) -> int:
    parts = stripped_snapshot(opened.snapshot, ignored).components.values()
    return sum(not isinstance(leaf, Alias) for part in parts for _, leaf in leaves(part.tree))
