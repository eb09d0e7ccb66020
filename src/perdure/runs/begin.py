"""Whether to begin or to resume: missing, empty and damaged are three different things."""

from dataclasses import dataclass

from perdure.checkpoint.policy import refuse_policy
from perdure.errors import AllDamagedError, DamagedError, NoCheckpointError, NoRunError, UsageError
from perdure.runs.directory import RunDirectory, newest_first
from perdure.runs.resumption import read_history


@dataclass(frozen=True)
class Beginning:
    """The decision."""

    resumes: bool
    """Whether there is a checkpoint to go on from."""
    notice: str | None = None
    """What the user must be told about a fresh start."""


def decide(directory: RunDirectory, mode: str) -> Beginning:
    """Looks at the directory, changes nothing.

    Raises:
        NoRunError: `resume`, and there is no run.
        NoCheckpointError: `resume`, and the run was stopped before its first commit.
        AllDamagedError: all that is left of the run's checkpoints stands under `damaged/`.
        UsageError: `new`, and there is a run already; or a policy stands there.
        DamagedError: checkpoints without a `run.json`.
    """
    refuse_policy(directory.path, "a run")
    has_record = directory.record.exists()
    has_checkpoints = any(newest_first(directory.store().names()))
    if has_checkpoints and not has_record:
        raise DamagedError(f"{directory.path}: there are checkpoints but no {directory.record.name}; put it back.")
    if mode == "new" and has_record:
        raise UsageError(f"{directory.path}: there is a run already; resume it, or choose another directory.")
    if mode == "resume" and not has_record:
        problem = "not a run (no run.json in it)" if directory.path.is_dir() else "no such directory"
        raise NoRunError(f"{directory.path}: {problem}. Check the spelling; nothing was created.")
    if has_checkpoints:
        return Beginning(resumes=True)
    return _without_checkpoints(directory, mode, has_record=has_record)


def _refuse_lost_checkpoints(directory: RunDirectory) -> None:
    """A run that had checkpoints never begins again by itself: somebody removed or moved them."""
    events, unreadable = read_history(directory)
    committed = [event["checkpoint"] for event in events if event["event"] == "committed"]
    if unreadable:
        message = f"{directory.path}: there is no checkpoint, and {unreadable[0]} Put the checkpoints back, or choose"
        raise NoCheckpointError(f"{message} another directory; nothing was changed.")
    if committed:
        message = (
            f"its lineage tells of checkpoints, the last one {committed[-1]}, but there is none; nothing was changed"
        )
        raise NoCheckpointError(f"{directory.path}: {message}. Put them back, or choose another directory.")


def _without_checkpoints(directory: RunDirectory, mode: str, *, has_record: bool) -> Beginning:
    if directory.damaged.is_dir() and any(directory.damaged.iterdir()):
        message = f"{directory.path}: every checkpoint was damaged; they stand under {directory.damaged.name}/."
        raise AllDamagedError(message)
    if not has_record:
        return Beginning(resumes=False)
    _refuse_lost_checkpoints(directory)
    stopped = "the run was stopped before its first checkpoint was committed"
    if mode == "resume":
        raise NoCheckpointError(f"{directory.path}: {stopped}; start it again without insisting on a resume.")
    return Beginning(resumes=False, notice=f"{stopped}; it starts again from the beginning.")
