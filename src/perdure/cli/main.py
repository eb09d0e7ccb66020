"""`perdure`: finds the verb, runs it, and turns what it raises into a message and an exit code."""

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from perdure.cli.exit_codes import EXPLANATION, ExitCode, code_of
from perdure.cli.output import printable
from perdure.errors import PerdureError, UsageError

VERBS = {
    "train": "train a policy in a run, or go on with that run",
    "resume": "go on with a run as it was launched",
    "log": "tell what happened to a run, in words",
    "fork": "begin a new run at a checkpoint of another one",
    "ls": "list the runs below a folder",
    "show": "say what is in a run or a checkpoint",
    "verify": "read every byte of a run or a checkpoint and name what is damaged",
    "export": "make a policy of a run: weights for inference, which cannot be resumed",
    "promote": "give a policy of a run a role, such as production, under which a deployment finds it",
    "eval": "play episodes with a policy",
    "convert": "turn a checkpoint or a file of one kind into one of another, and say what is lost",
    "audit": "find what a script's run does not save, although its training depends on it",
    "diff": "compare two runs or checkpoints bit by bit",
    "prove": "find out whether a script's resume is exact",
    "prune": "remove checkpoints that a retention policy does not keep",
    "pin": "make a checkpoint stay, whatever the retention policy says",
    "unpin": "hand a pinned checkpoint back to the retention policy",
}
"""Verb -> one line of help. Each is the module `perdure.cli.<verb>` with `add_arguments` and `run`."""

TAKING_COMMANDS = {"resume": "resume DIR", "prove": "prove", "audit": "audit"}
"""Verbs that take a command after `--`, and how they are written."""

USERS_OS_ERRORS = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""What a wrong path in the command leads to."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: the words after `perdure`; those of this process if None.

    Returns:
        The exit code (`perdure.cli.exit_codes`).
    """
    words = sys.argv[1:] if argv is None else list(argv)
    _print_anything()
    try:
        code = _run(words)
        sys.stdout.flush()
    except SystemExit as error:
        return _code_of_exit(error)
    except KeyboardInterrupt as error:
        return _say("; ".join(["interrupted", *map(str, error.args)]), ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.BROKEN_PIPE
    except PerdureError as error:
        return _say(str(error), code_of(error))
    except USERS_OS_ERRORS as error:
        return _say(str(error), ExitCode.USAGE)
    except Exception as error:  # noqa: BLE001 - the last resort: shown whole
        if _names_no_place(error):
            return _say(str(error), ExitCode.USAGE)
        traceback.print_exc()
        return _say("an unexpected error, see above.", ExitCode.UNEXPECTED)
    return code


def _run(words: list[str]) -> int:
    ours, command = _split(words)
    verb = next((word for word in ours if not word.startswith("-")), None)
    arguments, unknown = _parser(verb).parse_known_args(ours)
    if unknown:
        hint = f" Its command stands behind `--`: `perdure {verb} -- CMD …`." if verb in ("prove", "audit") else ""
        _parser(verb).error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    if arguments.verb is None:
        _parser(None).print_help(sys.stderr)
        return ExitCode.USAGE
    if command is not None and arguments.verb not in TAKING_COMMANDS:
        *others, last = (f"`perdure {usage} -- CMD`" for usage in TAKING_COMMANDS.values())
        taking = f"{', '.join(others)} and {last}"
        raise UsageError(f"{arguments.verb}: takes no command after `--`; only {taking} do.")
    arguments.command = command
    return import_module(f"perdure.cli.{arguments.verb}").run(arguments)


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before the first `--`, and those after it; by hand, for Python's versions of argparse disagree."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of everything, with the arguments of `verb` alone: the other verbs are not even imported."""
    parser = argparse.ArgumentParser(
        prog="perdure",
        description="Reinforcement-learning training that can be stopped anywhere and resumed bit for bit.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=False)
    for name, summary in VERBS.items():
        described = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        added = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", **described)
        if name == verb:
            import_module(f"perdure.cli.{name}").add_arguments(added)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that takes longer than most verbs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"perdure {version('perdure')}")
        parser.exit()


def _names_no_place(error: Exception) -> bool:
    """Whether a path in the command is too long, or a link that leads to itself."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return isinstance(error, RuntimeError) and str(error).startswith("Symlink loop")


def _code_of_exit(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or ExitCode.DONE
    return _say(str(error.code), ExitCode.UNEXPECTED)


def _say(message: str, code: ExitCode) -> ExitCode:
    try:
        print("perdure: " + "\n".join(map(printable, message.split("\n"))), file=sys.stderr)
    except BrokenPipeError:
        return code
    return code


def _print_anything() -> None:
    """A terminal that has no `×`, or a path that is no valid text, is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_stdout() -> None:
    """Python flushes once more when it ends, and would complain on stderr."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
