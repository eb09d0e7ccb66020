"""`perdure diff A B`: are two runs, or two checkpoints, the same to the last bit?"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perdure.checkpoint.opening import Opened
from perdure.cli.chain_diff import diff_chains
from perdure.cli.exit_codes import ExitCode
from perdure.cli.metric_streams import Stream, StreamDiff, compare_streams, read_stream
from perdure.cli.output import count, print_json
from perdure.cli.targets import CheckpointTarget, RunTarget, Target, find_target
from perdure.errors import DamagedError
from perdure.format.inventory import count_leaves
from perdure.tree.diff import Difference, diff_snapshots

SHOWN = 20

_SPACE_ENTROPY = re.compile(r"(.*_space/(?:.*/)?_np_random/)bit_generator/seed_sequence/entropy$")
"""What a generator of a space began from."""

NOTE = """\
A run stands for its newest checkpoint; two runs also compare their metric streams up to there. Every byte of both is
read and verified first; a damaged one ends with exit code 4. Exit code 1: they differ.
--chain compares two runs at each boundary up to the end of the shorter one, from their chain.jsonl alone: it says where
they part, without a checkpoint of there, in the time that it takes to read the two files.
"""


@dataclass(frozen=True)
class Comparison:
    """What was compared and what came out."""

    checkpoints: tuple[CheckpointTarget, CheckpointTarget]
    """The two."""
    opened: tuple[Opened, Opened]
    """Their verified content."""
    differences: list[Difference]
    """Of the state, leaf by leaf."""
    metrics: StreamDiff | None
    """Of the metric streams; None unless both are runs."""

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.same_state and (self.metrics is None or self.metrics.identical)

    @property
    def same_state(self) -> bool:
        """Whether the state digests that were committed are equal; both were verified against the bytes."""
        return self.opened[0].manifest.state_digest == self.opened[1].manifest.state_digest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("first", metavar="A", help="a run's directory, or a checkpoint's")
    parser.add_argument("second", metavar="B", help="another one")
    parser.add_argument("--chain", action="store_true", help="compare the digest chains of two runs alone")
    parser.add_argument("--all", action="store_true", help=f"list every difference, not the first {SHOWN} alone")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Compares, prints, and says by the exit code whether they are the same."""
    if arguments.chain:
        same = diff_chains(arguments.first, arguments.second, as_json=arguments.json)
        return ExitCode.DONE if same else ExitCode.DIFFERENCES
    comparison = compare(find_target(arguments.first), find_target(arguments.second))
    if arguments.json:
        print_json(_document(comparison, everything=arguments.all))
    else:
        _print(comparison, everything=arguments.all)
    return ExitCode.DONE if comparison.identical else ExitCode.DIFFERENCES


def compare(first: Target, second: Target) -> Comparison:
    """Opens, verifies and compares two targets.

    Raises:
        NoCheckpointError: a run has no checkpoint.
        DamagedError: a checkpoint, or the counted part of a metric stream, is not what was written.
    """
    a, b = _checkpoint(first), _checkpoint(second)
    opened = a.open(), b.open()
    same = opened[0].manifest.state_digest == opened[1].manifest.state_digest
    differences = [] if same else diff_snapshots(opened[0].snapshot, opened[1].snapshot)
    metrics = None
    if isinstance(first, RunTarget) and isinstance(second, RunTarget):
        metrics = compare_streams(_stream(first, opened[0]), _stream(second, opened[1]))
    return Comparison((a, b), opened, differences, metrics)


def _checkpoint(target: Target) -> CheckpointTarget:
    return target.newest() if isinstance(target, RunTarget) else target


def _stream(target: RunTarget, opened: Opened) -> Stream:
    stream = read_stream(target.directory, opened.manifest.metrics)
    if stream.problem is not None:
        raise DamagedError(f"{target.directory.path}: {stream.problem} ({opened.name}).")
    return stream


def _print(comparison: Comparison, *, everything: bool) -> None:
    for letter, checkpoint in zip("AB", comparison.checkpoints, strict=True):
        print(f"{letter}        {checkpoint.path}")
    opened = comparison.opened[0]
    total = count(count_leaves(opened.snapshot), "leaf")
    if comparison.same_state:
        print(f"state    bit-identical: {total} in {count(len(opened.snapshot.components), 'component')}")
        print(f"         {opened.manifest.state_digest}")
    else:
        print(f"state    {count(len(comparison.differences), 'difference')}; A holds {total}")
        _print_differences(comparison.differences, everything=everything)
        if hint := _unseeded(comparison.differences):
            print(hint)
    if comparison.metrics is not None:
        _print_metrics(comparison.metrics, everything=everything)


def _print_metrics(metrics: StreamDiff, *, everything: bool) -> None:
    if metrics.identical:
        print(f"metrics  identical: {count(metrics.rows[0], 'row')}")
        return
    print(f"metrics  {count(metrics.unequal_rows, 'row')} of {max(metrics.rows):,} differ")
    _print_differences(metrics.differences, everything=everything)


def _print_differences(differences: Sequence[Difference], *, everything: bool) -> None:
    shown = differences if everything else differences[:SHOWN]
    for difference in shown:
        print(f"  {difference}")
    if len(shown) < len(differences):
        print(f"  … and {len(differences) - len(shown):,} more; --all lists them")


def _unseeded(differences: Sequence[Difference]) -> str | None:
    """Two starts of one seed differ in the generators of spaces, which `reset(seed=…)` does not seed."""
    paths = [difference.path for difference in differences]
    spaces = {found[1] for path in paths if (found := _SPACE_ENTROPY.match(path))}
    affected = sum(path.startswith(tuple(spaces)) for path in paths)
    if not affected:
        return None
    of = "all" if affected == len(paths) else f"{affected:,} of them"
    return (
        f"  {of} in generators of spaces that began from another seed, or from none: reset(seed=…) leaves them out, "
        "perdure.gym.seed_spaces(envs, seed) seeds them"
    )


def _document(comparison: Comparison, *, everything: bool) -> dict[str, Any]:
    limit = None if everything else SHOWN
    sides = [
        {"path": target.path, "digest": opened.digest, "state_digest": opened.manifest.state_digest}
        for target, opened in zip(comparison.checkpoints, comparison.opened, strict=True)
    ]
    metrics = comparison.metrics
    return {
        "identical": comparison.identical,
        "first": sides[0],
        "second": sides[1],
        "state": {
            "identical": comparison.same_state,
            "leaves": count_leaves(comparison.opened[0].snapshot),
            "difference_count": len(comparison.differences),
            "differences": [asdict(difference) for difference in comparison.differences[:limit]],
        },
        "metrics": metrics
        and {
            "identical": metrics.identical,
            "rows": metrics.rows,
            "unequal_rows": metrics.unequal_rows,
            "difference_count": len(metrics.differences),
            "differences": [asdict(difference) for difference in metrics.differences[:limit]],
        },
    }
