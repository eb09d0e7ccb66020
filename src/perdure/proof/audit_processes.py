"""An audit's processes: the user's script, run from outside in scratch folders, with orders for its examiner."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.errors import Preempted, UsageError
from perdure.memory.look import Seen
from perdure.proof.processes import end_group, tail_of, without_orders
from perdure.proof.resumes import went_on_from
from perdure.runs.auditing import ORDERS
from perdure.runs.chain import Link, read_whole_links
from perdure.runs.directory import RunDirectory

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
    chains: Mapping[str, Sequence[Link]]
    """The digest chain of each run that it opened, by the run's name."""
    names_runs: bool = False
    """Whether components are told apart by their run, for the script opens several."""

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, by an error."""
        return self.code not in (0, Preempted.CODE)

    @property
    def fingerprint(self) -> Fingerprint:
        """What its state was at each boundary."""
        return {key: digest for run, chain in self.chains.items() for key, digest in self._fingerprint_of(run, chain)}

    def _fingerprint_of(self, run: str, chain: Sequence[Link]) -> Iterator[tuple[tuple[int, str], str]]:
        before = f"{run}/" if self.names_runs else ""
        for link in chain:
            yield (link.boundary, f"{before}{METRICS}"), link.metrics
            for name, digest in link.components.items():
                if name != PROCESS_RNG or not link.generators:
                    yield (link.boundary, f"{before}{name}"), digest
            for library, digest in link.generators.items():  # a script may seed one of them alone
                yield (link.boundary, f"{before}{PROCESS_RNG}/{library}"), digest

    @property
    def last(self) -> int:
        """The last boundary that it came to; -1 if there was none."""
        return max((chain[-1].boundary for chain in self.chains.values() if chain), default=-1)

    def looked(self, boundary: int) -> Seeing | None:
        """The look after a boundary; None: the process did not begin another turn then."""
        return self.looks.get(boundary)


class Processes:
    """Starts the script; each process has a folder of its own."""

    def __init__(self, command: Sequence[str], folder: Path, timeout_s: float) -> None:
        """Prepares.

        Args:
            command: the script with its arguments.
            folder: for everything that is written.
            timeout_s: how long each process may take.
        """
        self._command = list(command)
        self._folder = folder
        self._timeout_s = timeout_s
        self._names_runs: bool | None = None
        self.count = 0
        """Processes so far."""

    def start(self, *, until: int, orders: Mapping[str, Any], at: Path | None = None) -> Outcome:
        """Runs the script until a boundary, and waits for it.

        Args:
            until: the boundary at which it stops.
            orders: what its examiner is to do.
            at: a folder of runs that is copied first, to go on from; None: a fresh start.

        Raises:
            UsageError: the command cannot be executed, takes too long, or does not resume what is there.
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
        code, said = self._execute({name: str(value) for name, value in told.items()}, home / "said")
        runs = _runs(scratch)
        if runs - before and before and not any(went_on_from(RunDirectory(scratch / run)) for run in before):
            problem = f"started again it opens another run ({', '.join(sorted(runs - before))}) instead of resuming"
            raise UsageError(f"{self._command[-1]}: {problem}. Give the run a directory that stays the same.")
        chains = {run: read_whole_links(RunDirectory(scratch / run).chain) for run in sorted(runs)}
        if self._names_runs is None:  # the first process runs straight, and opens all that there are
            self._names_runs = len(runs) > 1
        return Outcome(code, said, scratch, _looks(home / "looks.jsonl"), chains, self._names_runs)

    def _execute(self, told: Mapping[str, str], out: Path) -> tuple[int, str]:
        """Runs the command in a session of its own, so that nothing of it is left; its output goes into a file."""
        with out.open("wb") as file:
            try:
                process = subprocess.Popen(
                    self._command,
                    env={**without_orders(os.environ), **told},
                    stdin=subprocess.DEVNULL,
                    stdout=file.fileno(),
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"{self._command[0]}: cannot be executed ({error.strerror}).") from error
            try:
                process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                problem = f"took longer than {self._timeout_s:g} s. Give it more with --timeout, or a smaller --until"
                raise UsageError(f"{self._command[-1]}: {problem}. It said last:\n{_tail(out)}") from None
            finally:
                end_group(process)
        return process.returncode, _tail(out)


def _tail(out: Path) -> str:
    return "\n".join(tail_of(out).splitlines()[-_TAIL:])


def _runs(scratch: Path) -> set[str]:
    return {path.name for path in scratch.iterdir()} if scratch.is_dir() else set()


def _looks(report: Path) -> dict[int, Seeing]:
    if not report.exists():
        return {}
    documents = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    return {document["boundary"]: _seeing(document) for document in reversed(documents)}  # the first of each counts


def _seeing(document: dict[str, Any]) -> Seeing:
    values = {path: Seen(**each) for path, each in document.pop("values", {}).items()}
    return Seeing(values=values, **document)
