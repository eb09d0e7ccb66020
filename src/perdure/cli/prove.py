"""`perdure prove -- python train.py …`: is a script's resume exact?"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from perdure.cli.ending import unwinding
from perdure.cli.exit_codes import ExitCode
from perdure.cli.interpreter import naming_interpreter
from perdure.cli.output import print_json
from perdure.cli.proof_report import Cost, document, print_mutations, print_verdict
from perdure.errors import UsageError
from perdure.proof.mutate import Mutation, mutate
from perdure.proof.plan import DEFAULT_UNTIL, Plan
from perdure.proof.processes import Processes
from perdure.proof.prove import Proof
from perdure.proof.verdict import Verdict
from perdure.runs.durations import seconds

NOTE = """\
The command is executed several times, each in a process of its own, with its runs in a scratch folder instead of where
the script says: twice straight to a boundary, then interrupted, and resumed to there. No run of yours is touched; other
files that the script writes are its own affair. Chains, last checkpoints and metric rows are compared bit by bit.
Exit code 0: exact. 1: not, or the script itself is not deterministic; the scratch folder then stays.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments; main splits off what stands after `--`."""
    parser.usage = (
        "perdure prove [--at K | --every | --random N] [--until M] [--kill] [--mutate] [--seed S] [--timeout TIME] "
        "[--keep DIR] [--json] -- CMD …"
    )
    parser.epilog = NOTE
    add = parser.add_argument
    add("--at", metavar="K", type=int, help="interrupt after boundary K (default: in the middle)")
    add("--every", action="store_true", help="interrupt one run after each boundary in turn")
    add("--random", metavar="N", type=int, help="interrupt one run after N random boundaries")
    add("--until", metavar="M", type=int, default=DEFAULT_UNTIL, help=f"how far runs go (default: {DEFAULT_UNTIL})")
    add("--kill", action="store_true", help="kill at a random instant after these boundaries; do not stop at them")
    add("--mutate", action="store_true", help="then leave each component out in turn: would the proof see it?")
    add("--seed", metavar="S", type=int, default=0, help="of what is random (default: 0)")
    add("--timeout", metavar="TIME", default="10m", help="how long each process may take (default: 10m)")
    add("--keep", metavar="DIR", type=Path, help="keep the runs and what the processes wrote in a new folder")
    add("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Proves, prints, and says by the exit code whether the resume is exact.

    Raises:
        UsageError: no command, or a plan that cannot be carried out.
        NoRunError: the script opens no run.
        ScriptError: the script fails by itself, or takes too long.
    """
    if not arguments.command:
        raise UsageError("prove: no command; write it after `--`: perdure prove -- python train.py …")
    plan = Plan(
        arguments.until, arguments.at, arguments.every, arguments.random, kill=arguments.kill, seed=arguments.seed
    )
    timeout_s = seconds("--timeout", arguments.timeout)
    folder = _folder(arguments.keep)
    try:
        with unwinding(), naming_interpreter(arguments.command):
            verdict, mutations, cost = _proven(arguments, plan, folder, timeout_s)
    except UsageError:
        _remove(folder)
        raise
    except BaseException:
        print(f"perdure: what the processes wrote is in {folder}", file=sys.stderr)
        raise
    kept = folder if arguments.keep or not verdict.is_exact else None
    if kept is None:
        _remove(folder)
    if arguments.json:
        print_json(document(verdict, mutations, cost, kept))
    else:
        print_verdict(verdict, cost, kept)
        if mutations is not None:
            print_mutations(mutations, verdict)
    return ExitCode.DONE if verdict.is_exact else ExitCode.DIFFERENCES


def _proven(
    arguments: argparse.Namespace, plan: Plan, folder: Path, timeout_s: float
) -> tuple[Verdict, Sequence[Mutation] | None, Cost]:
    started = time.monotonic()
    processes = Processes(arguments.command, _logs(folder), timeout_s, _tell)
    proof = Proof(processes, folder, plan)
    verdict = proof.run()
    mutations = mutate(proof, verdict) if arguments.mutate and verdict.is_exact else None
    return verdict, mutations, (processes.count, time.monotonic() - started)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="perdure-prove-"))
    folder = keep.expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--keep {folder}: something is there; give a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _logs(folder: Path) -> Path:
    logs = folder / "logs"
    logs.mkdir()
    return logs


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _tell(line: str) -> None:
    print(f"perdure: {line}", file=sys.stderr, flush=True)
