"""`perdure convert SRC DST`: a checkpoint of one kind becomes one of another, and every loss is said."""

import argparse
from dataclasses import asdict
from pathlib import Path

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count, print_json, print_table, printable
from perdure.cli.targets import RunTarget, find_policy, find_target
from perdure.interop.conversion import Conversion, convert
from perdure.runs.directory import RunDirectory

NOTE = """\
SRC is recognised by its content; nothing in it is run or imported. DST must not exist: it is there whole afterwards, or
not at all. What each kind can hold is said in docs/interop.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument(
        "source",
        metavar="SRC",
        help="the file or directory, a run (its newest checkpoint) or RUN@STEP; it is only read",
    )
    parser.add_argument("target", metavar="DST", help="the file or directory to make; it must not exist")
    parser.add_argument(
        "--to",
        metavar="KIND",
        help="perdure, safetensors, storage-ckpt, torch or orbax (default: by DST's ending, else perdure)",
    )
    parser.add_argument("--component", metavar="NAME", help="only this component of SRC")
    parser.add_argument(
        "--map",
        metavar="PATTERN=NEW",
        action="append",
        default=[],
        help="rename leaves, by the names that --dry-run lists: what the regular expression PATTERN fits becomes NEW; "
        "in the order given; a leaf of which no name is left is left out ('.*eps.*=')",
    )
    parser.add_argument("--widen", action="store_true", help="narrow floats that DST cannot hold become wider ones")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, leaf by leaf; write nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Converts.

    Raises:
        UsageError: something stands at DST, a name is wrong, DST cannot hold a leaf, or an extra is not installed.
        NoCheckpointError: there is nothing at SRC, or nothing that is known.
        DamagedError: SRC is not what was written.
    """
    done = convert(
        source_of(arguments.source),
        arguments.target,
        to=arguments.to,
        component=arguments.component,
        names=arguments.map,
        widen=arguments.widen,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        print_json({**asdict(done), "written": not arguments.dry_run})
        return ExitCode.DONE
    _print(done, arguments)
    return ExitCode.DONE


def source_of(text: str) -> Path:
    """What is read: the path itself, a run's newest checkpoint, `RUN@STEP`, or the policy that has the role there.

    Raises:
        NothingToLoadError: the run has no such checkpoint, or the role no policy.
        UsageError: nobody says what is best.
    """
    path = Path(text).expanduser()
    policy = find_policy(text)
    if policy is not None:
        return policy.path
    if path.exists() and not RunDirectory(path).record.exists():
        return path
    if not path.exists() and "@" not in text:
        return path
    target = find_target(text)
    return (target.newest() if isinstance(target, RunTarget) else target).path


def _print(done: Conversion, arguments: argparse.Namespace) -> None:
    word = "would convert" if arguments.dry_run else "converted"
    ends = f"{arguments.source} ({done.source}) to {arguments.target} ({done.target})"
    print(printable(f"{word} {ends}: {count(len(done.leaves), 'leaf')}"))
    if arguments.dry_run and done.leaves:
        pairs = zip(done.origins, done.leaves, strict=True)
        rows = [(old, "->" if old != leaf.name else "=", leaf.name, leaf.what) for old, leaf in pairs]
        print_table([[printable(cell) for cell in row] for row in rows], indent="  ")
    if done.losses:
        print("carried in another form, or not at all:")
    for loss in done.losses:
        print(f"  {printable(loss)}")
