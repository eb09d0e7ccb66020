"""`perdure log RUN`: what happened to a run, in words."""

import argparse
from collections.abc import Sequence
from typing import Any

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count, print_json, print_table
from perdure.errors import DamagedError
from perdure.runs.directory import RunDirectory, newest_first, open_directory
from perdure.runs.lineage import read_lineage
from perdure.runs.lock import is_held
from perdure.runs.record import read_record
from perdure.runs.story import hours, story

NOTE = "Times are UTC. Each line of the lineage bears its digest and that of the line before: an edited one is named."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--json", action="store_true", help="the events themselves, one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Tells the story.

    Raises:
        NoRunError: there is no run at the path.
        DamagedError: a line of the lineage was edited, removed or inserted.
    """
    directory = open_directory(arguments.run)
    read_record(directory.record)
    events = _events(directory)
    if arguments.json:
        print_json(events)
        return ExitCode.DONE
    rows = [(sentence.at[:19].replace("T", " "), sentence.text) for sentence in story(events)]
    if rows:
        print_table(rows)
    print(summary(events, is_running=_is_running(directory)))
    return ExitCode.DONE


def _events(directory: RunDirectory) -> list[dict[str, Any]]:
    try:
        events = read_lineage(directory.lineage)
    except DamagedError as error:
        raise DamagedError(f"{directory.path}: {error}. {_INDEPENDENT}") from error
    if not events and any(newest_first(directory.store().names())):
        raise DamagedError(f"{directory.path}: {directory.lineage.name} is missing or empty. {_INDEPENDENT}")
    return events


_INDEPENDENT = "The checkpoints do not depend on it: `perdure verify` examines them."


def _is_running(directory: RunDirectory) -> bool | None:
    try:
        return is_held(directory.lock)
    except PermissionError:
        return None


def summary(events: Sequence[dict[str, Any]], *, is_running: bool | None = None) -> str:
    """The last line: attempts, training time, acceptances, and whether it ended.

    Args:
        events: the lineage.
        is_running: whether a process has the run open; None: that cannot be told.
    """
    attempts = sum(event["event"] in ("started", "resumed") and not event.get("forked_from") for event in events)
    if not attempts:
        return "no attempt yet"
    ended = events[-1]["event"] in ("stopped", "finished")
    times = [event["trained_s"] for event in events if "trained_s" in event]
    at_least = "" if ended else "at least "  # what came after the last commit is not told
    parts = [count(attempts, "attempt"), f"{at_least}{hours(times[-1] if times else 0.0)} of training"]
    accepted = len(_accepted(events))
    if accepted:
        parts.append(f"{count(accepted, 'difference')} accepted")
    if not ended:
        parts.append(_OPEN[is_running])
    return ", ".join(parts)


_OPEN = {
    True: "running",
    False: "ended without a word: killed, or the machine stopped",
    None: "open: it is running, or ended without a word",
}
"""What is said of a run whose last event is no end, by whether a process holds its lock."""


def _accepted(events: Sequence[dict[str, Any]]) -> set[str]:
    """What somebody accepted, each once; what only follows from it does not count."""
    acceptances = [each for event in events if event["event"] == "resumed" for each in event["accepted"]]
    implied = {each["text"] for each in acceptances if "implied_by" in each}
    return {each["text"] for each in acceptances} - implied
