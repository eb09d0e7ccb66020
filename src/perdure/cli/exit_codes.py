"""What the tool's exit codes mean, and which error leads to which."""

from enum import IntEnum

from perdure.errors import (
    ContractError,
    CrashLoopError,
    DamagedError,
    LockedError,
    NothingToLoadError,
    UsageError,
    WorkerDiedError,
)


class ExitCode(IntEnum):
    """Supervisors retry on 75 and on 128 or more, never on the others."""

    DONE = 0
    """Done, or finished already."""
    DIFFERENCES = 1
    """`diff` found a difference; `prove`, `audit` a resume that is not exact; `verify` damage, but not everywhere."""
    USAGE = 2
    """The command cannot be right."""
    CONTRACT = 3
    """The resume would not be the same run."""
    NOTHING_TO_LOAD = 4
    """No run, no checkpoint, or nothing intact."""
    LOCKED = 5
    """Another process trains this run."""
    CRASH_LOOP = 6
    """The last resumes all failed before anything new was committed."""
    WORKER_DIED = 7
    """The process of an environment died; the last boundary is committed."""
    UNEXPECTED = 70
    """Anything else: a full disk, a fault of perdure's."""
    PREEMPTED = 75
    """Stopped by a signal or a time limit, after a commit."""
    INTERRUPTED = 130
    """Stopped by a second Ctrl-C, or by Ctrl-C where no run is open."""
    BROKEN_PIPE = 141
    """The reader of the output went away, as in `perdure ls | head -1`."""


EXPLANATION = """\
exit codes:
  0    done, or finished already
  1    diff: they differ; prove, audit: not exact; verify: something is damaged, but an intact checkpoint is left
  2    usage
  3    the resume would not be the same run: configuration, seed or structure differ
  4    nothing intact to load: no run, no checkpoint, or all damaged
  5    another process is training this run
  6    the last three resumes of a checkpoint all failed; --retry tries once more
  7    the process of an environment died; the last boundary is committed
  70   an unexpected error; of a training, the last boundary is committed
  75   stopped by a signal or a time limit, after a commit
  130  stopped by a second Ctrl-C
Start again on 75 and on 128 or more, on nothing else.
"""

_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (ContractError, ExitCode.CONTRACT),
    (NothingToLoadError, ExitCode.NOTHING_TO_LOAD),
    (DamagedError, ExitCode.NOTHING_TO_LOAD),
    (LockedError, ExitCode.LOCKED),
    (UsageError, ExitCode.USAGE),
    (CrashLoopError, ExitCode.CRASH_LOOP),
    (WorkerDiedError, ExitCode.WORKER_DIED),
)


def code_of(error: Exception) -> ExitCode:
    """The exit code that an error ends the tool with."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)
