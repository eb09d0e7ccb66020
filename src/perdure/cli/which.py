"""Which checkpoint of a run a verb is for: `best`, `latest` or a step, by a metric and a mode."""

import argparse

from perdure.cli.targets import CheckpointTarget, RunTarget, chosen_target, find_target
from perdure.errors import UsageError
from perdure.runs.loading import newest_intact
from perdure.runs.record import read_record


def add_which(parser: argparse.ArgumentParser) -> None:
    """The run, which of its checkpoints, and what the best one is."""
    parser.add_argument("run", metavar="RUN", help="a run's directory, which may be training, or a checkpoint's")
    parser.add_argument(
        "which", metavar="best|latest|STEP", nargs="?", help="of a run: the checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="of best: the metric (default: what the run's Keep(best=…) names)"
    )
    parser.add_argument(
        "--mode", choices=["max", "min"], help="of best: which is better (default: as Keep says, or max)"
    )


def checkpoint_of(arguments: argparse.Namespace) -> CheckpointTarget:
    """The checkpoint that the words mean; of a run's newest ones, the first that is intact in every byte.

    Raises:
        NothingToLoadError: no run, no such checkpoint, or nothing intact.
        UsageError: the words cannot be meant, or nobody says what is best.
    """
    which, ranked = arguments.which, (arguments.metric, arguments.mode)
    if which is not None and which != "latest":
        return chosen_target(arguments.run, which, *ranked)
    if ranked != (None, None):
        raise UsageError("--metric and --mode say what the best checkpoint is: RUN best --metric NAME.")
    target = find_target(arguments.run)
    if isinstance(target, RunTarget):
        return _newest_intact(target)
    if which is not None:
        raise UsageError(f"{which}: is for a run; a checkpoint is itself one step.")
    return target


def _newest_intact(target: RunTarget) -> CheckpointTarget:
    directory = target.directory
    target.newest()
    found = newest_intact(directory.store(), str(directory.path), read_record(directory.record).run_id)
    return CheckpointTarget(directory.checkpoints / found.opened.name)
