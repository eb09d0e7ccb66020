"""`perdure pin RUN STEP`: a checkpoint stays, whatever the retention policy says."""

import argparse

from perdure.cli.exit_codes import ExitCode
from perdure.runs.directory import open_directory, step_name
from perdure.runs.pins import pin
from perdure.runs.record import read_record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("step", metavar="STEP", type=int, help="the checkpoint's env-steps")


def run(arguments: argparse.Namespace) -> int:
    """Pins.

    Raises:
        NoRunError: there is no run at the path.
        NoCheckpointError: the run has no such checkpoint.
    """
    read_record(open_directory(arguments.run).record)
    pin(arguments.run, arguments.step)
    print(f"pinned {step_name(arguments.step)}")
    return ExitCode.DONE
