"""`perdure verify PATH`: is every byte of a run, a checkpoint or a policy what was written?"""

import argparse
from typing import Any

from perdure.cli.examination import Examined, Report, examine_checkpoint, examine_policy, examine_run
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count, print_json, size
from perdure.cli.targets import CheckpointTarget, find_policy, find_target

NOTE = """\
Reads all checkpoints and policies of a run, its record, lineage and metrics; changes nothing.
exit codes: 0 all is intact; 1 something is damaged, but an intact checkpoint is left; 4 none is.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("target", metavar="PATH", help="a run's directory, a checkpoint's or a policy's")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Examines, prints, and says by the exit code what is left."""
    report = examine(arguments.target)
    if arguments.json:
        print_json(_document(report))
    else:
        _print(report)
    if not report.intact:
        return ExitCode.NOTHING_TO_LOAD
    return ExitCode.DONE if report.sound else ExitCode.DIFFERENCES


def examine(place: str) -> Report:
    """The report on the run or checkpoint at a path.

    Raises:
        NoRunError: neither is there.
    """
    policy = find_policy(place)
    if policy is not None:
        return Report(policy.path, (examine_policy(policy),), (), (), "policy")
    target = find_target(place)
    if isinstance(target, CheckpointTarget):
        examined = examine_checkpoint(target)
        return Report(target.path, (examined,), (), examined.notes)
    return examine_run(target)


def _print(report: Report) -> None:
    print(report.path)
    for checkpoint in report.checkpoints:
        print(f"  {_line(checkpoint)}")
    for problem in report.problems:
        print(f"  damaged  {problem}")
    for note in report.notes:
        print(f"  note     {note}")
    print(_verdict(report))


def _line(checkpoint: Examined) -> str:
    if checkpoint.problem is not None:
        return f"damaged  {checkpoint.problem}"
    return f"intact   {checkpoint.name}  {size(checkpoint.size_bytes)}"


def _verdict(report: Report) -> str:
    total, intact = len(report.checkpoints), report.intact
    if report.kind == "policy":
        return "intact: a policy (evaluation only)." if intact else "nothing intact: the policy is damaged."
    if not total:
        return "there is no checkpoint."
    if not intact:
        return f"nothing intact: {count(total, 'checkpoint')} damaged."
    if len(intact) < total:
        return f"{total - len(intact)} of {count(total, 'checkpoint')} damaged; the newest intact one is {intact[0]}."
    others = f", but {count(len(report.problems), 'problem')} beside" if report.problems else ""
    return f"intact: {count(total, 'checkpoint')}{others}."


def _document(report: Report) -> dict[str, Any]:
    return {
        "path": report.path,
        "kind": report.kind,
        "sound": report.sound,
        "newest_intact": report.intact[0] if report.intact else None,
        "checkpoints": [
            {"name": checkpoint.name, "intact": checkpoint.problem is None, "problem": checkpoint.problem}
            for checkpoint in report.checkpoints
        ],
        "problems": report.problems,
        "notes": report.notes,
    }
