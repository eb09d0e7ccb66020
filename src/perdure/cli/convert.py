"""`perdure convert SRC DST`: a checkpoint of nnx-ppo becomes one of perdure's, and every loss is said."""

import argparse

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count

NOTE = """\
SRC is a directory step_NNNNNNNNNN that nnx-ppo's make_checkpoint_fn wrote. Nothing in it is run or imported. DST is a
checkpoint as perdure.save makes it: perdure.read(DST) needs no framework. Converting needs the `jax` extra.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("source", metavar="SRC", help="the checkpoint's directory; it is only read")
    parser.add_argument("target", metavar="DST", help="the directory to make; it must not exist")


def run(arguments: argparse.Namespace) -> int:
    """Converts.

    Raises:
        UsageError: there is something at DST, or the `jax` extra is not installed.
        NoCheckpointError: there is no checkpoint of nnx-ppo at SRC.
        DamagedError: SRC is not what nnx-ppo wrote.
    """
    from perdure.interop.nnx_ppo import convert

    done = convert(arguments.source, arguments.target)
    print(f"converted {arguments.source} at step {done.step:,} to {arguments.target}: {count(done.leaves, 'leaf')}")
    print("carried in another form, or not at all:")
    for loss in done.losses:
        print(f"  {loss}")
    return ExitCode.DONE
