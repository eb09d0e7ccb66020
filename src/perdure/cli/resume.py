"""`perdure resume DIR`: go on with a run as it was launched."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from perdure.cli.exit_codes import ExitCode
from perdure.cli.targets import horizon_of
from perdure.cli.training import KEEP_LAST, cadence, require_trainer, retention, watch
from perdure.errors import UsageError
from perdure.runs.begin import decide
from perdure.runs.directory import RunDirectory, open_directory
from perdure.runs.loading import newest_intact
from perdure.runs.lock import acquire
from perdure.runs.record import RunRecord, read_record
from perdure.runs.retention import Keep

if TYPE_CHECKING:
    from perdure.cli.progress import Progress
    from perdure.nnx import TrainResult

NOTE = """\
A run of `perdure train` goes on in this process. For a script's run the recorded command is printed and executed where
it was launched (never if another user could have written it); a command after `--` takes its place and is executed
here. Either way it must resume: PERDURE_MODE=resume and PERDURE_RUN_DIR make it fail when there is nothing to resume in
this run. How many checkpoints a script's run keeps is the script's own affair.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments; main splits off what stands after `--`."""
    parser.usage = "perdure resume DIR [--keep-last N] [-- CMD ...]"
    parser.epilog = NOTE
    parser.add_argument("directory", metavar="DIR", help="the run's directory")
    parser.add_argument(
        "--keep-last",
        metavar="N",
        type=int,
        help="of a run of `perdure train`: how many of the newest checkpoints stay (default: as launched; 0: all)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Goes on to the horizon; a script takes this process's place.

    Raises:
        NothingToLoadError: no run, no checkpoint, or nothing intact.
        LockedError: another process trains the run.
        UsageError: the record does not tell how to go on.
    """
    if arguments.command == []:
        raise UsageError("resume: no command after `--`.")
    directory = open_directory(arguments.directory)
    record = read_record(directory.record)
    keep = retention(
        arguments.keep_last if arguments.keep_last is not None else record.launch.get("keep_last", KEEP_LAST)
    )
    decide(directory, "resume")
    found = newest_intact(directory.store(), str(directory.path), record.run_id)
    env_steps, horizon = found.opened.manifest.env_steps, horizon_of(record)
    if horizon is not None and env_steps >= horizon:
        print(f"{directory.path}: finished already, at {env_steps:,} of {horizon:,} steps ({found.opened.name}).")
        return ExitCode.DONE
    if arguments.keep_last is not None and (arguments.command or record.launch.get("kind") == "script"):
        raise UsageError("--keep-last is for runs of `perdure train`; a script says itself what it keeps.")
    return _go_on(directory, record, arguments.command, keep)


def _go_on(directory: RunDirectory, record: RunRecord, command: Sequence[str] | None, keep: Keep | None) -> int:
    if command is not None:
        _execute(directory, command, Path.cwd())
    match record.launch:
        case {"kind": "trainer", "name": "ppo", "config": dict()}:
            return _resume_ppo(directory, record, keep)
        case {"kind": "trainer", "name": name}:
            raise UsageError(f"{directory.path}: launched by the trainer {name!r}; this perdure has: ppo.")
        case {"kind": "script", "argv": [str(), *_] as argv, "cwd": str(cwd)}:
            _check_ownership(directory)
            _execute(directory, argv, Path(cwd))
    raise UsageError(f"{directory.path}: its record does not tell how it was launched. {_ask_for_command(directory)}")


def _resume_ppo(directory: RunDirectory, record: RunRecord, keep: Keep | None) -> int:
    require_trainer()
    config: Mapping[str, Any] = record.launch["config"]
    _check_config(directory, config)

    def launch(progress: "Progress") -> "TrainResult":
        from perdure.nnx import resume_ppo

        every = cadence(config["checkpoint_every_steps"])
        return resume_ppo(record.launch, directory.path, checkpoint_every=every, keep=keep, log_fn=progress)

    return watch(directory, config["ppo"]["total_steps"], launch)


def _check_config(directory: RunDirectory, config: Mapping[str, Any]) -> None:
    """The recorded options must still be this perdure's, before anything is opened."""
    from perdure.cli.train import check_buildable
    from perdure.nnx.config import NetworkConfig, TrainConfig, from_mapping

    try:
        parts = dict(config)
        env, networks = parts.pop("env_id"), from_mapping(NetworkConfig, parts.pop("networks"))
        from_mapping(TrainConfig, parts)
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{directory.record}: its options are not this perdure's: {error}") from error
    check_buildable(env, networks)


def _check_ownership(directory: RunDirectory) -> None:
    """A command is executed only if nobody but this user can have written it down."""
    for path in (directory.path, directory.record):
        status = path.stat()
        if status.st_uid != os.geteuid():
            whose = "belongs to another user, who could have written any command into it"
        elif status.st_mode & 0o002:
            whose = "can be written by every user"
        else:
            continue
        raise UsageError(f"{path}: {whose}; nothing was executed. {_ask_for_command(directory)}")


def _execute(directory: RunDirectory, argv: Sequence[str], cwd: Path) -> NoReturn:
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
        os.execvpe(argv[0], list(argv), {**os.environ, **insists})  # noqa: S606 - no shell on purpose
    except OSError as error:
        raise UsageError(f"{argv[0]}: cannot be executed ({error.strerror}). {_ask_for_command(directory)}") from error


def _ask_for_command(directory: RunDirectory) -> str:
    return f"Give the command yourself: perdure resume {shlex.quote(str(directory.path))} -- CMD …"
