"""`perdure log RUN`: what happened to a run, in words."""

import argparse
from collections.abc import Sequence
from typing import Any

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count, print_json, print_table
from perdure.runs.directory import open_directory
from perdure.runs.lineage import read_lineage
from perdure.runs.record import read_record
from perdure.runs.story import hours, story

NOTE = "Times are UTC. Each line of the lineage bears the digest of the line before it: an edited one is named."


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
    events = read_lineage(directory.lineage)
    if arguments.json:
        print_json(events)
        return ExitCode.DONE
    rows = [(sentence.at[:19].replace("T", " "), sentence.text) for sentence in story(events)]
    if rows:
        print_table(rows)
    print(summary(events))
    return ExitCode.DONE


def summary(events: Sequence[dict[str, Any]]) -> str:
    """The last line: attempts, training time, acceptances, and whether it ended."""
    attempts = sum(event["event"] in ("started", "resumed") for event in events)
    accepted = sum(len(event["accepted"]) for event in events if event["event"] == "resumed")
    times = [event["trained_s"] for event in events if "trained_s" in event]
    parts = [count(attempts, "attempt"), f"at least {hours(max(times, default=0.0))} of training"]
    if accepted:
        parts.append(f"{count(accepted, 'difference')} accepted")
    last = next((event["event"] for event in reversed(events) if event["event"] in ("stopped", "finished")), None)
    if not events or events[-1]["event"] != last:
        parts.append("open: it is running, or ended without a word")
    return ", ".join(parts)
