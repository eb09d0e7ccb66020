"""`perdure prune DIR`: removes checkpoints that a retention policy does not keep."""

import argparse

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import print_json
from perdure.errors import NoCheckpointError
from perdure.runs.directory import RunDirectory, newest_first, open_directory
from perdure.runs.loading import newest_intact
from perdure.runs.lock import acquire
from perdure.runs.pruning import Plan, plan, prune
from perdure.runs.record import read_record
from perdure.runs.retention import Keep

NOTE = """\
The newest checkpoint and pinned ones always stay. Nothing is removed unless the newest checkpoint is intact.
examples: perdure prune runs/x --last 3 --dry-run;  perdure prune runs/x --last 1 --best 1 --metric return
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("run", metavar="DIR", help="the run's directory")
    parser.add_argument("--last", type=int, metavar="N", help="keep the newest N")
    parser.add_argument("--every", type=int, metavar="STEPS", help="keep the first at or past each multiple of STEPS")
    parser.add_argument("--best", type=int, metavar="N", help="keep the best N by --metric")
    parser.add_argument("--metric", metavar="NAME", help="a name among the boundaries' metrics")
    parser.add_argument("--mode", choices=["max", "min"], default="max", help="which metric is better (default: max)")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Prunes, or says what it would do.

    Raises:
        NoRunError: there is no run at the path.
        NoCheckpointError: the run has no checkpoint.
        AllDamagedError: no checkpoint is intact; nothing is removed.
        DamagedError: the newest checkpoint is damaged; nothing is removed.
        LockedError: a process trains this run.
        UsageError: a policy that cannot be meant.
    """
    keep = Keep(arguments.last, arguments.every, arguments.best, arguments.metric, arguments.mode)
    directory = open_directory(arguments.run)
    run_id = read_record(directory.record).run_id
    if not any(newest_first(directory.store().names())):
        raise NoCheckpointError(f"{directory.path}: the run has no checkpoint.")
    result = _plan_only(directory, keep) if arguments.dry_run else _prune(directory, keep, run_id)
    if arguments.json:
        print_json({"policy": str(keep), "kept": dict(result.kept), "removed": list(result.removed)})
    else:
        _print(result, keep, dry_run=arguments.dry_run)
    return ExitCode.DONE


def _plan_only(directory: RunDirectory, keep: Keep) -> Plan:
    return plan(directory, keep, {})


def _prune(directory: RunDirectory, keep: Keep, run_id: str) -> Plan:
    lock = acquire(directory.lock)
    try:
        newest_intact(directory.store(), str(directory.path), run_id, strict=True)
        return prune(directory, keep, {})
    finally:
        lock.release()


def _print(result: Plan, keep: Keep, *, dry_run: bool) -> None:
    print(f"policy   {keep}")
    for name, reason in sorted(result.kept.items()):
        print(f"keep     {name}  {reason}")
    for name in result.removed:
        print(f"{'would go' if dry_run else 'removed '} {name}")
