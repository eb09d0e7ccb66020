"""`perdure ls [DIR]`: the runs and policies below a folder, sorted, filtered, and watched."""

import argparse
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perdure.cli.exit_codes import ExitCode
from perdure.cli.listing import Row, rows_below
from perdure.cli.output import duration, print_json, size, table
from perdure.cli.targets import POLICY_CLASS, class_of
from perdure.errors import NoRunError, UsageError
from perdure.runs.state import STATES

HEAD = ("RUN", "AGENT", "ENV", "STEPS", "OF", "RETURN", "STATE", "CLASS", "SIZE", "AGE")

NOTE = """\
state: running (a process holds the writer lock), finished, stopped (on purpose), crashed (in an exception, or without a
word); of a promoted policy: current or superseded. return: the last value of --metric, or else of the metric whose name
has the word `return`, or `reward`; evaluations first, then the shortest name. Patterns may hold * and ?.
examples: perdure ls runs --state crashed --sort=-age;  perdure ls runs --env 'CartPole-*' --watch 5
"""

COLUMNS: dict[str, Callable[[Row], Any]] = {
    "run": lambda row: row.run,
    "agent": lambda row: row.agent,
    "env": lambda row: row.env,
    "steps": lambda row: row.env_steps,
    "of": lambda row: row.total_steps,
    "return": lambda row: row.last_return,
    "state": lambda row: row.state,
    "class": lambda row: "policy" if row.kind == "policy" else row.continuation_class,
    "size": lambda row: row.size_bytes,
    "age": lambda row: row.age_s,
}
"""What `--sort` takes, and the filters look at."""

FILTERS = ("state", "env", "agent", "class")
WATCH_S = 2.0
CLEAR = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", type=Path, help="where to look (here)")
    parser.add_argument("--sort", metavar="COLUMN", help=f"{', '.join(COLUMNS)}; --sort=-COLUMN: the greatest first")
    for name in FILTERS:
        which = f"one of {', '.join(STATES)}, or a pattern" if name == "state" else "a pattern"
        parser.add_argument(
            f"--{name}", metavar="PATTERN", action="append", dest=f"{name}s", help=f"only of this {name}: {which}"
        )
    parser.add_argument("--metric", metavar="NAME", help="what tells the return")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        const=WATCH_S,
        type=float,
        help=f"look again ({WATCH_S:.0f}) until Ctrl-C",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Lists the runs.

    Raises:
        NoRunError: there is no such folder.
        UsageError: there is no such column, or the words do not go together.
    """
    folder = arguments.folder.expanduser()
    if not folder.is_dir():
        raise NoRunError(f"{folder}: no such directory. Check the spelling.")
    _column(arguments.sort)
    if arguments.watch is not None:
        return _watch(folder, arguments)
    rows = _selected(folder, arguments)
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        print("\n".join(_lines(rows, folder)))
    return ExitCode.DONE


def _watch(folder: Path, arguments: argparse.Namespace) -> int:
    """Looks again and again; on a terminal the table stands still, elsewhere one follows the other in plain text."""
    if arguments.json:
        raise UsageError("ls --watch: is for people; call `ls --json` as often as you need it.")
    if not (math.isfinite(arguments.watch) and arguments.watch > 0):
        raise UsageError(f"ls --watch {arguments.watch}: a number of seconds above 0.")
    try:
        while True:
            lines = [f"{datetime.now():%H:%M:%S}  {folder}", *_lines(_selected(folder, arguments), folder)]
            on_terminal = sys.stdout.isatty()
            print(
                (CLEAR if on_terminal else "") + "\n".join(_fitting(lines) if on_terminal else [*lines, ""]), flush=True
            )
            time.sleep(arguments.watch)
    except KeyboardInterrupt:
        return ExitCode.DONE


def _fitting(lines: Sequence[str]) -> list[str]:
    """The lines that fit the terminal, cut to its width, so that none of them scrolls."""
    width, height = shutil.get_terminal_size()
    fitting = [line[:width] for line in lines]
    if len(fitting) < height:
        return fitting
    kept = max(height - 2, 1)
    return [*fitting[:kept], f"… {len(lines) - kept} more lines"]


def _selected(folder: Path, arguments: argparse.Namespace) -> list[Row]:
    wanted = {name: patterns for name in FILTERS if (patterns := getattr(arguments, f"{name}s"))}
    rows = [row for row in rows_below(folder, arguments.metric) if _matches(row, wanted)]
    return rows if arguments.sort is None else _sorted(rows, arguments.sort)


def _matches(row: Row, wanted: dict[str, list[str]]) -> bool:
    return all(
        any(fnmatchcase(str(COLUMNS[name](row) or ""), pattern) for pattern in patterns)
        for name, patterns in wanted.items()
    )


def _column(text: str | None) -> tuple[str, bool]:
    """The column's name, and whether the greatest comes first."""
    name = (text or "run").removeprefix("-")
    if name not in COLUMNS:
        raise UsageError(f"ls --sort {text}: no such column; there are {', '.join(COLUMNS)}.")
    return name, (text or "").startswith("-")


def _sorted(rows: Iterable[Row], text: str) -> list[Row]:
    """In the order of a column; rows that have nothing there, or no number, come last either way."""
    name, descends = _column(text)
    rows = list(rows)
    there = [row for row in rows if (value := COLUMNS[name](row)) is not None and value == value]
    rest = [row for row in rows if (value := COLUMNS[name](row)) is None or value != value]
    return sorted(there, key=COLUMNS[name], reverse=descends) + rest


def _lines(rows: Sequence[Row], folder: Path) -> list[str]:
    if not rows:
        return [f"no runs below {folder.absolute()}"]
    problems = [f"! {row.run}: {row.problem}" for row in rows if row.problem]
    return [*table([HEAD, *map(_cells, rows)], right=(3, 4, 5, 8, 9)), *problems]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.run,
        row.agent or "–",
        row.env or "–",
        "–" if row.env_steps is None else f"{row.env_steps:,}",
        "–" if row.total_steps is None else f"{row.total_steps:,}",
        "–" if row.last_return is None else f"{row.last_return:.4g}",
        (row.state or "–") + (" !" if row.problem else ""),
        _class(row) + (", amended" if row.amended else ""),
        size(row.size_bytes),
        "–" if row.age_s is None else duration(row.age_s),
    )


def _class(row: Row) -> str:
    if row.kind == "policy":
        return POLICY_CLASS
    return class_of(row.continuation_class) if row.continuation_class else "–"
