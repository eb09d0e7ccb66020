"""Every exception that perdure raises, in one tree.

    PerdureError
    ├── UsageError (ValueError)              a call that cannot be right: a bad name, a counter that goes back
    │   └── ForgottenValueError              a value given to `restore` is missing at `boundary`
    ├── CaptureError (TypeError)             an object cannot be turned into a tree
    │   ├── UnknownObjectError               no adapter knows the object
    │   └── UnsupportedLeafError             the leaf has no exact representation (object arrays)
    ├── DamagedError (ValueError)            a file is not what was written: digest, length, grammar
    │   └── UnsupportedVersionError          written by a newer perdure
    ├── NothingToLoadError (LookupError)     there is nothing intact to load
    │   ├── NoRunError                       the directory is missing or is no run
    │   ├── NoCheckpointError                a run without any checkpoint
    │   └── AllDamagedError                  every checkpoint is damaged
    ├── ContractError (ValueError)           the resume would not be the same run; lists every difference
    │   └── PolicyMismatchError              the policy was trained for something else
    ├── RestoreError (RuntimeError)          applying failed; what was there before has been put back
    ├── CommitError (OSError)                a checkpoint could not be committed; earlier ones are untouched
    ├── CrashLoopError (RuntimeError)        the run was resumed again and again, and failed each time
    ├── WorkerDiedError (RuntimeError)       the process of an environment ended by itself
    └── LockedError (BlockingIOError)        another process, or this one, already has the run open

Each also inherits the builtin exception that callers already catch. `Preempted` is none of them: it is a `SystemExit`,
which no `except Exception` stops.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar


@dataclass(frozen=True)
class Finding:
    """One difference between what was saved and what was found at a resume."""

    key: str
    """Where: `section.key` of the contract, or the path of a leaf (`optimizer/0/mu`)."""
    saved: str
    """What the checkpoint or the run holds, as a person reads it."""
    found: str
    """What the target or the new configuration holds."""
    advice: str
    """The way out, one sentence."""
    section: str = "structure"
    """The section of the contract, or `structure` for leaves that do not fit."""
    meaning: str = ""
    """What going on all the same would mean, one sentence."""
    change: str | None = None
    """`OLD:NEW`, exact and unabridged, where the change may be accepted; None where it may not."""
    follows: str | None = None
    """The key of another finding that is the same change; whoever accepts that one accepts this one too."""

    @property
    def acceptance(self) -> str | None:
        """What `--accept` takes to accept this very difference: `KEY=OLD:NEW`."""
        return None if self.change is None else f"{self.key}={self.change}"

    @property
    def difference(self) -> str:
        """Where, what the run holds, and what is here."""
        return f"{self.key}: {self.saved} in the run, {self.found} here." if self.saved else f"{self.key}:"

    @property
    def explanation(self) -> str:
        """What it means, and the way out."""
        if self.follows:
            return f"It follows from {self.follows}."
        return " ".join(filter(None, (self.meaning, self.advice)))

    def __str__(self) -> str:
        return f"{self.difference} {self.explanation}"


class PerdureError(Exception):
    """The root of every exception that perdure raises on purpose."""


class UsageError(PerdureError, ValueError):
    """The call itself cannot be right."""


class ForgottenValueError(UsageError):
    """A value that `restore` was given is missing at `boundary`, or a new one appeared."""


class CaptureError(PerdureError, TypeError):
    """An object cannot be turned into a tree."""


class UnknownObjectError(CaptureError):
    """No adapter knows the object."""


class UnsupportedLeafError(CaptureError):
    """The leaf has no exact representation on disk."""


class DamagedError(PerdureError, ValueError):
    """A file is not what was written, by perdure or by a library whose files it imports."""


class UnsupportedVersionError(DamagedError):
    """The file was written by a format version that this perdure does not read."""


class NothingToLoadError(PerdureError, LookupError):
    """There is nothing intact to load."""


class NoRunError(NothingToLoadError):
    """The directory does not exist, or is not a run."""


class NoCheckpointError(NothingToLoadError):
    """The run has no checkpoint."""


class AllDamagedError(NothingToLoadError):
    """Every checkpoint of the run is damaged."""


class ContractError(PerdureError, ValueError):
    """The resume would not be the same run.

    Attributes:
        findings: every difference, in the order of the message.
    """

    claim: ClassVar[str] = "this is not the same run"

    def __init__(self, place: str, findings: Sequence[Finding]) -> None:
        self.place = place
        self.findings = tuple(findings)
        head = f"{place}: {_count(self.findings, self.claim)}; nothing was changed."
        super().__init__("\n".join([head, *_lines(self.findings), *_ways_on(self.findings)]))


class PolicyMismatchError(ContractError):
    """The policy was trained for something else: other modules, spaces or levels; lists every difference."""

    claim: ClassVar[str] = "the policy was trained for something else"


MISTAKEN = "accept"
"""The section of findings that are no differences: acceptances that accept nothing."""


def _count(findings: Sequence[Finding], claim: str) -> str:
    mistaken = sum(finding.section == MISTAKEN for finding in findings)
    parts = []
    if mistaken < len(findings):
        number = len(findings) - mistaken
        parts.append(f"{claim}: {number} difference{'s' if number != 1 else ''}")
    if mistaken:
        parts.append(f"{mistaken} acceptance{'s accept' if mistaken != 1 else ' accepts'} nothing")
    return ", ".join(parts)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """A line each; what is to be said of several in a row is said once, after them."""
    for explanation, group in groupby(findings, key=lambda finding: finding.explanation):
        same = list(group)
        if len(same) == 1:
            yield f"  {same[0]}"
            continue
        yield from (f"  {finding.difference}" for finding in same)
        yield f"    {explanation}"


def _ways_on(findings: Sequence[Finding]) -> list[str]:
    """The last line: what to type to go on with the changes, if all of them may be accepted."""
    independent = [finding for finding in findings if finding.follows is None and finding.section != MISTAKEN]
    acceptances = [finding.acceptance for finding in independent if finding.acceptance is not None]
    if not acceptances:
        return []
    words = " ".join(f"--accept {shlex.quote(text)}" for text in acceptances)
    others = len(independent) - len(acceptances)
    if others:
        return [f"  {'One' if others == 1 else others} of them cannot be accepted; the others could be, by: {words}"]
    return [f"  To go on all the same: {words}"]


class RestoreError(PerdureError, RuntimeError):
    """Applying a checkpoint failed half-way; the state from before has been put back."""


class CommitError(PerdureError, OSError):
    """A checkpoint could not be committed; earlier checkpoints are untouched."""


class WorkerDiedError(PerdureError, RuntimeError):
    """The process that steps an environment ended by itself.

    Attributes:
        index: which environment, from 0.
        exit_code: of its process; a negative number is the signal that killed it; None if it is not known.
    """

    def __init__(self, index: int, exit_code: int | None) -> None:
        self.index = index
        self.exit_code = exit_code
        how = "its exit code is not known"
        if exit_code is not None:
            how = f"signal {-exit_code} killed it" if exit_code < 0 else f"its exit code is {exit_code}"
        way_out = "Look at what it printed, build the environments anew and resume from the last checkpoint."
        super().__init__(f"environment {index}: its worker process died ({how}). {way_out}")


class CrashLoopError(PerdureError, RuntimeError):
    """Several resumes of one checkpoint each ended in an error before anything new was committed."""


class Preempted(SystemExit):
    """The run was told to stop, by a signal or by `stop_after`: its state is durable and the process should end.

    Its exit code is 75, upon which supervisors start the command again.

    Attributes:
        why: `SIGTERM`, `SIGINT`, `SIGUSR1`, or the time limit.
        directory: the run's.
        checkpoint: the newest checkpoint, from which a resume goes on.
    """

    CODE = 75

    def __init__(self, why: str, directory: str, checkpoint: str) -> None:
        self.why = why
        self.directory = directory
        self.checkpoint = checkpoint
        super().__init__(self.CODE)

    def __str__(self) -> str:
        way_on = f"go on with: perdure resume {shlex.quote(self.directory)}"
        return f"{self.directory}: stopped by {self.why}, {self.checkpoint} is durable; {way_on}"


class LockedError(PerdureError, BlockingIOError):
    """The run is open elsewhere."""
