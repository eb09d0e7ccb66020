"""Finding the newest intact checkpoint of a run, stepping back over damaged ones."""

from dataclasses import dataclass

from perdure.checkpoint.filling import Rings
from perdure.checkpoint.opening import Opened, open_checkpoint, read_manifest
from perdure.errors import AllDamagedError, DamagedError, NoCheckpointError, UnsupportedVersionError
from perdure.format.manifest import Manifest
from perdure.runs.directory import newest_first, steps_of
from perdure.store.store import Store


@dataclass(frozen=True)
class Found:
    """The newest intact checkpoint, and what was wrong with the newer ones."""

    opened: Opened
    """Read and verified."""
    damage: dict[str, str]
    """Name of each newer, damaged checkpoint -> what is wrong with it."""


def newest_intact(
    store: Store, place: str, run_id: str | None = None, *, strict: bool = False, rings: Rings | None = None
) -> Found:
    """Reads and verifies checkpoints from the newest down, until one is intact.

    Args:
        store: the run's checkpoints.
        place: the run's directory, for messages.
        run_id: the run that every checkpoint here must belong to.
        strict: refuse instead of stepping back.
        rings: see `open_checkpoint`.

    Raises:
        DamagedError: `strict`, and the newest is damaged.
        NoCheckpointError: there is none.
        AllDamagedError: none is intact; the message lists what is wrong with each.
        UnsupportedVersionError: the newest was written by a newer perdure; stepping back would lose work.
    """
    names = list(newest_first(store.names()))
    if not names:
        raise NoCheckpointError(f"{place}: the run has no checkpoint; it was stopped before the first was committed.")
    damage: dict[str, str] = {}
    for name in names:
        try:
            return Found(open_of_run(store, name, run_id, rings), damage)
        except UnsupportedVersionError:
            raise
        except DamagedError as error:
            if strict:
                raise
            damage[name] = str(error)
    listed = "\n".join(f"  {problem}" for problem in damage.values())
    raise AllDamagedError(f"{place}: all {len(names)} checkpoints are damaged; nothing was changed.\n{listed}")


def open_of_run(store: Store, name: str, run_id: str | None, rings: Rings | None = None) -> Opened:
    """Opens a checkpoint and proves that it stands where it was written.

    Raises:
        DamagedError: also if it was renamed or belongs to another run.
    """
    opened = open_checkpoint(store, name, rings=rings)
    check_place(name, opened.manifest, run_id)
    return opened


def manifest_of_run(store: Store, name: str, run_id: str | None) -> Manifest:
    """The same for the manifest alone: quick, tensor files unread."""
    manifest, _ = read_manifest(store, name)
    check_place(name, manifest, run_id)
    return manifest


def check_place(name: str, manifest: Manifest, run_id: str | None) -> None:
    """Proves that a checkpoint bears its own name and belongs to this run."""
    if steps_of(name) != manifest.env_steps:
        raise DamagedError(f"{name}: was written as step {manifest.env_steps} and renamed")
    if run_id is not None and manifest.run_id != run_id:
        raise DamagedError(f"{name}: belongs to run {manifest.run_id}, not to {run_id}")
