"""`perdure fork RUN --at STEP --to NEW`: a new run that begins at a checkpoint of another one."""

import argparse
import shlex

from perdure.cli.exit_codes import ExitCode
from perdure.contract.horizon import total_of
from perdure.runs.directory import open_directory
from perdure.runs.fork import fork
from perdure.runs.record import RunRecord, read_record

NOTE = """\
The new run has its own identity and remembers its parent. It copies the checkpoint, the metric rows up to there and the
contract. To go on in another way, accept the difference: perdure resume NEW --accept KEY=OLD:NEW
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("run", metavar="RUN", help="the run's directory; it may be training")
    parser.add_argument("--at", metavar="STEP", type=int, required=True, help="the checkpoint's env-steps")
    parser.add_argument("--to", metavar="NEW", required=True, help="the new run's directory; it must not exist")


def run(arguments: argparse.Namespace) -> int:
    """Forks.

    Raises:
        NoRunError: there is no run at the path.
        NoCheckpointError: the run has no such checkpoint.
        DamagedError: the checkpoint is damaged.
        UsageError: there is something at NEW already.
    """
    fork(arguments.run, arguments.at, arguments.to)
    new = open_directory(arguments.to)
    print(f"forked {open_directory(arguments.run).path} at step {arguments.at:,} to {new.path}")
    print(f"go on with: perdure resume {shlex.quote(str(new.path))}{_missing(read_record(new.record), arguments.at)}")
    return ExitCode.DONE


def _missing(record: RunRecord, env_steps: int) -> str:
    """What `perdure resume` needs to be told beside the directory."""
    if record.launch.get("argv") == []:
        return " -- CMD …"
    total = total_of(record.contract.get("horizon", {}))
    is_done = record.launch.get("kind") == "trainer" and total is not None and env_steps >= total
    return " --total-steps N" if is_done else ""
