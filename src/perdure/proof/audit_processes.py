"""An audit's processes: the user's script, run from outside in scratch folders, with orders for its examiner."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.errors import Preempted, UsageError
from perdure.memory.look import Seen
from perdure.runs.auditing import ORDERS
from perdure.runs.chain import Link, read_whole_links
from perdure.runs.directory import RunDirectory

_TOLD_BY_OTHERS = ("PERDURE_RUN_DIR", "PERDURE_MODE", "PERDURE_ACCEPT", "PERDURE_REASON", "PERDURE_RETRY")
_TOLD_BY_OTHERS += ("PERDURE_STOP_AFTER", "PERDURE_STOP_AT_BOUNDARY", "PERDURE_CHAIN", "PERDURE_SCRATCH", ORDERS)
_TAIL = 15

Fingerprint = dict[tuple[int, str], str]
"""By boundary and component: its digest; `metrics` stands for the rows so far."""
METRICS = "metrics"


@dataclass(frozen=True)
class Seeing:
    """One look, as the examiner wrote it down."""

    boundary: int
    """After which boundary."""
    loop: Mapping[str, Any] | None
    """The loop whose turn began; None: none was found."""
    values: Mapping[str, Seen] = field(default_factory=dict)
    """By access path."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What was left out."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The source file of each frame and module."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What could not be copied or put, and why."""


@dataclass(frozen=True)
class Outcome:
    """What one process left."""

    code: int
    """Its exit code."""
    said: str
    """The end of what it printed."""
    scratch: Path
    """Its folder of runs."""
    looks: Mapping[int, Seeing]
    """By boundary."""
    links: Sequence[Link]
    """Its digest chain."""

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, by an error."""
        return self.code not in (0, Preempted.CODE)

    @property
    def fingerprint(self) -> Fingerprint:
        """What its state was at each boundary."""
        found = {(link.boundary, name): digest for link in self.links for name, digest in link.components.items()}
        return found | {(link.boundary, METRICS): link.metrics for link in self.links}

    def looked(self, boundary: int) -> Seeing | None:
        """The look after a boundary; None: the process did not begin another turn then."""
        return self.looks.get(boundary)


class Processes:
    """Starts the script; each process has a folder of its own."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Prepares.

        Args:
            command: the script with its arguments.
            folder: for everything that is written.
        """
        self._command = list(command)
        self._folder = folder
        self.count = 0
        """Processes so far."""

    def start(self, *, until: int, orders: Mapping[str, Any], at: Path | None = None) -> Outcome:
        """Runs the script until a boundary, and waits for it.

        Args:
            until: the boundary at which it stops.
            orders: what its examiner is to do.
            at: a folder of runs that is copied first, to go on from; None: a fresh start.

        Raises:
            UsageError: the command cannot be executed.
        """
        self.count += 1
        home = self._folder / f"{self.count:03}"
        home.mkdir(parents=True)
        scratch, file = home / "runs", home / "orders.json"
        if at is not None:
            shutil.copytree(at, scratch)
        before = _runs(scratch)
        file.write_text(json.dumps({**orders, "report": str(home / "looks.jsonl")}), encoding="utf-8")
        told = {"PERDURE_SCRATCH": scratch, "PERDURE_CHAIN": 1, "PERDURE_STOP_AT_BOUNDARY": until, ORDERS: file}
        code, said = self._execute({name: str(value) for name, value in told.items()})
        runs = _runs(scratch)
        if at is not None and runs != before:
            problem = f"started again it opens another run ({', '.join(sorted(runs - before))}) instead of resuming"
            raise UsageError(f"{self._command[-1]}: {problem}. Give the run a directory that stays the same.")
        links = [link for run in sorted(runs) for link in read_whole_links(RunDirectory(scratch / run).chain)]
        return Outcome(code, said, scratch, _looks(home / "looks.jsonl"), links)

    def _execute(self, told: Mapping[str, str]) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if name not in _TOLD_BY_OTHERS}
        try:
            ended = subprocess.run(
                self._command,
                env={**environment, **told},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except OSError as error:
            raise UsageError(f"{self._command[0]}: cannot be executed ({error.strerror}).") from error
        lines = ended.stdout.decode("utf-8", "replace").splitlines()
        return ended.returncode, "\n".join(lines[-_TAIL:])


def _runs(scratch: Path) -> set[str]:
    return {path.name for path in scratch.iterdir()} if scratch.is_dir() else set()


def _looks(report: Path) -> dict[int, Seeing]:
    if not report.exists():
        return {}
    documents = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    return {document["boundary"]: _seeing(document) for document in documents}


def _seeing(document: dict[str, Any]) -> Seeing:
    values = {path: Seen(**each) for path, each in document.pop("values", {}).items()}
    return Seeing(values=values, **document)
