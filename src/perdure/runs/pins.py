"""Pins: checkpoints that the user said stay, whatever the retention policy says."""

import os

from perdure.errors import DamagedError, NoCheckpointError
from perdure.format import canonical
from perdure.runs.directory import RunDirectory, open_directory, step_name
from perdure.store.small_files import replace_durably


def read_pins(directory: RunDirectory) -> frozenset[str]:
    """The names of pinned checkpoints, whether or not they still exist.

    Raises:
        DamagedError: `pins.json` is not what was written.
    """
    if not directory.pins.exists():
        return frozenset()
    names = canonical.decode(directory.pins.read_bytes(), str(directory.pins))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedError(f"{directory.pins}: not a list of names")
    return frozenset(names)


def pin(run: str | os.PathLike[str], env_steps: int) -> None:
    """Makes a checkpoint stay until it is unpinned.

    Args:
        run: the run's directory; a process may be training there.
        env_steps: the checkpoint's env-steps.

    Raises:
        NoCheckpointError: the run has no such checkpoint.
    """
    directory, name = open_directory(run), step_name(env_steps)
    if name not in directory.store().names():
        raise NoCheckpointError(f"{directory.path}: no checkpoint at {env_steps} env-steps to pin.")
    _write(directory, read_pins(directory) | {name})


def unpin(run: str | os.PathLike[str], env_steps: int) -> None:
    """Hands a pinned checkpoint back to the retention policy; one that is not pinned is no error."""
    directory = open_directory(run)
    _write(directory, read_pins(directory) - {step_name(env_steps)})


def _write(directory: RunDirectory, names: frozenset[str]) -> None:
    replace_durably(directory.pins, canonical.encode(sorted(names)))
