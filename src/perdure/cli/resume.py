"""`perdure resume DIR`: go on with a run as it was launched."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from perdure.checkpoint.policy import refuse_policy
from perdure.cli.exit_codes import ExitCode
from perdure.cli.options import changed_options, launch_by_contract, total_in
from perdure.cli.trainers import Resumption, trainer_named
from perdure.cli.training import KEEP_LAST, environment_for, retention, told, watch
from perdure.contract.horizon import total_of
from perdure.contract.overrides import given_texts
from perdure.errors import UsageError
from perdure.runs.begin import decide
from perdure.runs.directory import RunDirectory, open_directory
from perdure.runs.durations import seconds
from perdure.runs.loading import Found, newest_intact
from perdure.runs.lock import acquire
from perdure.runs.ownership import foreign_hand
from perdure.runs.record import read_record
from perdure.runs.resumption import latest_launch, latest_total, read_history

NOTE = """\
A run of `perdure train` goes on in this process. For a script's run the recorded command is printed and executed where
it was launched (never if another user could have written it); a command after `--` takes its place and is executed
here. Either way it must resume: PERDURE_MODE=resume and PERDURE_RUN_DIR make it fail when there is nothing to resume in
this run; PERDURE_ACCEPT and PERDURE_REASON hand it what is accepted, PERDURE_STOP_AFTER and PERDURE_RETRY the options
of these names. How many checkpoints a script's run keeps is the
script's own affair.
"""

_FIRST_LAUNCH = "A command is that of the first launch; options are those of the newest checkpoint."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments; main splits off what stands after `--`."""
    parser.usage = (
        "perdure resume DIR [--accept KEY=OLD:NEW] [--reason TEXT] [--total-steps N [--schedules HOW]] [--keep-last N] "
        "[--stop-after TIME] [--retry] [-- CMD …]"
    )
    parser.epilog = NOTE
    parser.add_argument("directory", metavar="DIR", help="the run's directory")
    parser.add_argument(
        "--keep-last",
        metavar="N",
        type=int,
        help="of a run of `perdure train`: how many of the newest checkpoints stay (default: as launched; 0: all)",
    )
    parser.add_argument(
        "--total-steps",
        metavar="N",
        type=int,
        help="of a run of `perdure train`: go for another total of steps",
    )
    parser.add_argument(
        "--schedules",
        choices=["keep", "restretch"],
        help="with --total-steps: what becomes of a learning rate that falls: its old line is finished and 0 stays, or "
        "what is left of it is stretched over the steps that are left",
    )
    parser.add_argument(
        "--accept",
        metavar="KEY=OLD:NEW",
        action="append",
        default=[],
        help="accept a difference from the run, as the refusal says it; a run of `perdure train` takes the new value",
    )
    parser.add_argument(
        "--stop-after",
        metavar="TIME",
        help="let this process run for so long (3h55m), then commit and leave with code 75",
    )
    parser.add_argument(
        "--retry", action="store_true", help="try once more although the last three resumes of the checkpoint failed"
    )
    parser.add_argument("--reason", metavar="TEXT", help="why it is accepted, for the run's history")


def run(arguments: argparse.Namespace) -> int:
    """Goes on to the horizon; a script takes this process's place.

    Raises:
        NothingToLoadError: no run, no checkpoint, or nothing intact.
        LockedError: another process trains the run.
        UsageError: the record does not tell how to go on; or a policy stands there.
    """
    if arguments.command == []:
        raise UsageError("resume: no command after `--`.")
    if arguments.reason and not arguments.accept:
        raise UsageError("--reason says why something is accepted; give --accept too.")
    if arguments.stop_after is not None:
        seconds("--stop-after", arguments.stop_after)
    if arguments.schedules and arguments.total_steps is None:
        raise UsageError("--schedules says what another total does; give --total-steps too.")
    given_texts(arguments.accept)  # what is no acceptance at all is said here, not in a script's traceback
    directory = open_directory(arguments.directory)
    refuse_policy(directory.path, "a run")
    record = read_record(directory.record)
    history, unreadable = read_history(directory)
    decide(directory, "resume")
    found = newest_intact(directory.store(), str(directory.path), record.run_id)
    launch = latest_launch(record, history)
    if unreadable:
        print(f"perdure: {directory.path}: {unreadable[0]} {_FIRST_LAUNCH}", file=sys.stderr)
        launch = launch_by_contract(launch, found.opened.manifest.contract)
    if arguments.command is None and launch.get("kind") == "trainer":
        return _resume_trainer(directory, launch, found, arguments)
    _refuse_options_of_trainers(arguments)
    total, env_steps = latest_total(record, history), found.opened.manifest.env_steps
    goes_on = arguments.command is not None or bool(arguments.accept)
    if not goes_on and total is not None and env_steps >= total:
        return _finished(directory, found, total)
    return _resume_script(directory, launch, arguments)


def _finished(directory: RunDirectory, found: Found, total: int) -> int:
    env_steps = found.opened.manifest.env_steps
    print(f"{directory.path}: finished already, at {env_steps:,} of {total:,} steps ({found.opened.name}).")
    return ExitCode.DONE


def _refuse_options_of_trainers(arguments: argparse.Namespace) -> None:
    for option, value in (("--keep-last", arguments.keep_last), ("--total-steps", arguments.total_steps)):
        if value is not None:
            raise UsageError(
                f"{option} is for runs of `perdure train`; a script has its own options: perdure resume RUN -- CMD …"
            )


def _resume_script(directory: RunDirectory, launch: Mapping[str, Any], arguments: argparse.Namespace) -> NoReturn:
    told = environment_for(directory, stop_after=arguments.stop_after, retry=arguments.retry)
    told |= {"PERDURE_ACCEPT": json.dumps(arguments.accept)} if arguments.accept else {}
    told |= {"PERDURE_REASON": arguments.reason} if arguments.reason else {}
    if arguments.command is not None:
        _execute(directory, arguments.command, Path.cwd(), told)
    match launch:
        case {"kind": "script", "argv": [str(), *_] as argv, "cwd": str(cwd)}:
            _check_ownership(directory)
            _execute(directory, argv, Path(cwd), told)
    if "withheld" in launch:
        problem = f"its command held a secret, which was not written down: {launch['withheld']}"
        raise UsageError(f"{directory.path}: {problem}. {_ask_for_command(directory)}")
    raise UsageError(f"{directory.path}: its record does not tell how it was launched. {_ask_for_command(directory)}")


def _resume_trainer(
    directory: RunDirectory, launch: Mapping[str, Any], found: Found, arguments: argparse.Namespace
) -> int:
    name, recorded = launch.get("name"), launch.get("config")
    trainer = trainer_named(name)
    if trainer is None:
        raise UsageError(f"{directory.path}: launched by the trainer {name!r}; this perdure has: ppo, torch-ppo.")
    if not isinstance(recorded, dict) or not isinstance(total_in(recorded, trainer.total), int):
        raise UsageError(f"{directory.path}: its launch record is not this perdure's.")
    config = changed_options(recorded, arguments.accept, arguments.total_steps, total=trainer.total)
    total, env_steps = total_in(config, trainer.total), found.opened.manifest.env_steps
    is_done = env_steps >= total and not arguments.accept
    if is_done and arguments.total_steps in (None, total_of(found.opened.manifest.contract.get("horizon", {}))):
        return _finished(directory, found, total)
    last = arguments.keep_last if arguments.keep_last is not None else launch.get("keep_last", KEEP_LAST)
    keep = retention(last)
    if arguments.schedules and not trainer.has_schedules:
        raise UsageError(f"--schedules: in a run of {name} nothing depends on the total; leave it out.")
    trainer.check(directory.path, recorded, config)
    changed = {**launch, "config": config}
    resumption = Resumption(changed, directory.path, keep, arguments.accept, arguments.reason, arguments.schedules)
    with told(directory, stop_after=arguments.stop_after, retry=arguments.retry):
        return watch(directory, total, lambda progress: trainer.resume(resumption, progress))


def _check_ownership(directory: RunDirectory) -> None:
    """A command is executed only if nobody but this user can have written it down."""
    problem = foreign_hand(directory)
    if problem is not None:
        raise UsageError(f"{problem}; nothing was executed. {_ask_for_command(directory)}")


def _execute(directory: RunDirectory, argv: Sequence[str], cwd: Path, told: Mapping[str, str]) -> NoReturn:
    """Puts the command in this process's place, so that signals and exit codes are its own."""
    acquire(directory.lock).release()  # before a script starts, which would report it in a traceback
    if not cwd.is_dir():
        raise UsageError(f"{cwd}: the folder in which the run was launched is gone. {_ask_for_command(directory)}")
    print(f"perdure: in {cwd}: {shlex.join(argv)}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(cwd)
    insists = {"PERDURE_MODE": "resume", "PERDURE_RUN_DIR": str(directory.path)}
    try:
        os.execvpe(argv[0], list(argv), {**os.environ, **insists, **told})  # noqa: S606 - no shell on purpose
    except OSError as error:
        raise UsageError(f"{argv[0]}: cannot be executed ({error.strerror}). {_ask_for_command(directory)}") from error


def _ask_for_command(directory: RunDirectory) -> str:
    return f"Give the command yourself: perdure resume {shlex.quote(str(directory.path))} -- CMD …"
