"""The processes of a proof: a user's command, run as it is, told by its environment where and how far to go."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perdure.errors import PerdureError, Preempted, UsageError

POLL_S = 0.005
TAIL_LINES = 20
TAIL_BYTES = 16_384


class ScriptError(PerdureError, RuntimeError):
    """The script under proof ended by an error of its own, or did not get anywhere in time."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    label: str
    """What it was for."""
    code: int
    """Its exit code; negative: the signal that killed it."""
    seconds: float
    """How long it took."""
    out: Path
    """What it wrote to stdout."""
    err: Path
    """What it wrote to stderr."""
    was_killed: bool = False
    """Whether the proof killed it."""

    @property
    def is_well(self) -> bool:
        """Whether it finished, or stopped where it was told to."""
        return self.was_killed or self.code in (0, Preempted.CODE)

    def tail(self) -> str:
        """The last lines that it wrote to stderr, or to stdout if there are none."""
        lines = tail_of(self.err).splitlines() or tail_of(self.out).splitlines()
        return "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])


@dataclass(frozen=True)
class Orders:
    """What a process is told."""

    stop_at: int
    """The boundary that it stops at."""
    saves_each: int | None = None
    """At which boundaries there are checkpoints besides the cadence's: multiples of this."""
    leaves_fresh: str | None = None
    """The component that a resume leaves as a fresh start has it."""
    hash_seed: str | None = None
    """PYTHONHASHSEED, if it is to be another than the user's."""

    def variables(self, scratch: Path) -> dict[str, str]:
        """The environment: the user's without what steers a run, and the orders."""
        told = {
            "PERDURE_SCRATCH": str(scratch),
            "PERDURE_CHAIN": "1",
            "PERDURE_STOP_AT_BOUNDARY": str(self.stop_at),
            "PERDURE_SAVE_EACH": None if self.saves_each is None else str(self.saves_each),
            "PERDURE_LEAVE_FRESH": self.leaves_fresh,
            "PYTHONHASHSEED": self.hash_seed,
        }
        return without_orders(os.environ) | {name: value for name, value in told.items() if value is not None}


class Runner(Protocol):
    """Whatever runs a training: processes of a command, or a function in this process."""

    name: str
    """What runs, for messages."""
    sets_hash_seed: bool
    """Whether `Orders.hash_seed` is obeyed."""

    def run(self, scratch: Path, orders: Orders, label: str, kill_when: Callable[[], bool] | None = None) -> Ended:
        """Runs it once, to its end: see `Processes.run`."""
        ...


class Processes:
    """Starts the processes of one command, one after the other, and counts them."""

    def __init__(self, argv: Sequence[str], logs: Path, timeout_s: float, tell: Callable[[str], None]) -> None:
        """Prepares; nothing is started.

        Args:
            argv: the command.
            logs: the folder for what the processes write.
            timeout_s: how long each may take.
            tell: called with a line about each process as it begins.
        """
        self.argv = tuple(argv)
        self.name = shlex.join(argv)
        self.sets_hash_seed = True
        self._logs = logs
        self._timeout_s = timeout_s
        self._tell = tell
        self.count = 0
        """How many were started."""

    def run(self, scratch: Path, orders: Orders, label: str, kill_when: Callable[[], bool] | None = None) -> Ended:
        """Runs the command once, to its end.

        Args:
            scratch: where its runs live.
            orders: what it is told.
            label: what it is for, for people.
            kill_when: asked all the time; the process is killed as soon as it says so.

        Raises:
            UsageError: the command cannot be executed.
            ScriptError: it took too long.
        """
        self.count += 1
        self._tell(label)
        out, err = (self._logs / f"{self.count:02d}.{name}" for name in ("stdout", "stderr"))
        scratch.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = self._start(orders.variables(scratch), out_file.fileno(), err_file.fileno())
            try:
                was_killed = self._wait(process, started, label, kill_when)
            finally:
                end_group(process)
        return Ended(label, process.returncode, time.monotonic() - started, out, err, was_killed)

    def _start(self, environment: Mapping[str, str], out: int, err: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(environment),
                start_new_session=True,  # so that its workers can be killed with it
            )
        except OSError as error:
            message = f"{self.argv[0]}: cannot be executed ({error.strerror}). Write the command as you would type it"
            raise UsageError(f"{message}: perdure prove -- python train.py …") from error

    def _wait(
        self, process: subprocess.Popen[bytes], started: float, label: str, kill_when: Callable[[], bool] | None
    ) -> bool:
        while True:
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if kill_when is not None and kill_when():
                    return True
                if time.monotonic() - started > self._timeout_s:
                    raise ScriptError(f"{label}: {self.name} took longer than {self._timeout_s:g} s") from None
            else:
                return False


def without_orders(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without what steers a run."""
    return {name: value for name, value in environment.items() if not name.startswith("PERDURE_")}


def tail_of(path: Path) -> str:
    """The end of what a process wrote, which may be gigabytes."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all that it started; of one that has ended, what it left behind."""
    with suppress(ProcessLookupError):  # nothing is left of the group
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
