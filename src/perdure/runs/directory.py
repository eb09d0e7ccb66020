"""The layout of a run's directory, and small files written durably."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from perdure.store.local import LocalStore

_STEP_NAME = re.compile(r"step_(\d{10,})")


@dataclass(frozen=True)
class RunDirectory:
    """Where everything of a run stands."""

    path: Path
    """The run's directory, absolute."""

    @property
    def record(self) -> Path:
        """Who the run is."""
        return self.path / "run.json"

    @property
    def patch(self) -> Path:
        """What was not committed of its code when it began."""
        return self.path / "code.patch"

    @property
    def lineage(self) -> Path:
        """What happened."""
        return self.path / "lineage.jsonl"

    @property
    def metrics(self) -> Path:
        """Deterministic values, one row a boundary."""
        return self.path / "metrics.jsonl"

    @property
    def chain(self) -> Path:
        """Digests of the state, one line a boundary, where the run keeps some."""
        return self.path / "chain.jsonl"

    @property
    def timings(self) -> Path:
        """Durations and sizes, never compared."""
        return self.path / "timings.jsonl"

    @property
    def pins(self) -> Path:
        """Checkpoints that stay whatever the retention policy says."""
        return self.path / "pins.json"

    @property
    def lock(self) -> Path:
        """Held by the one writer."""
        return self.path / ".writer.lock"

    @property
    def checkpoints(self) -> Path:
        """One directory a checkpoint."""
        return self.path / "checkpoints"

    @property
    def damaged(self) -> Path:
        """Checkpoints that a resume stepped back from."""
        return self.path / "damaged"

    @property
    def policies(self) -> Path:
        """One directory a policy: evaluation only."""
        return self.path / "policies"

    def policy_store(self) -> LocalStore:
        """The store of its policies."""
        return LocalStore(self.policies, self.damaged)

    def store(self) -> LocalStore:
        """The store of its checkpoints."""
        return LocalStore(self.checkpoints, self.damaged)


def open_directory(path: str | os.PathLike[str]) -> RunDirectory:
    """The directory at `path`, made absolute now, so that a later chdir changes nothing."""
    return RunDirectory(Path(path).expanduser().absolute())


def step_name(env_steps: int) -> str:
    """A checkpoint's name in a run."""
    return f"step_{env_steps:010d}"


def steps_of(name: str) -> int | None:
    """The steps in a checkpoint's name; None if it is not one that `step_name` makes."""
    match = _STEP_NAME.fullmatch(name)
    return int(match[1]) if match and step_name(int(match[1])) == name else None


def newest_first(names: list[str]) -> Iterator[str]:
    """The names of checkpoints among `names`, from the greatest step down."""
    by_steps = {steps_of(name): name for name in names}
    return (by_steps[steps] for steps in sorted((steps for steps in by_steps if steps is not None), reverse=True))


def append_whole(file: FileIO, data: bytes) -> None:
    """Appends all of `data`, or nothing: a line cut by a full disk would swallow the next one.

    Raises:
        OSError: it could not be written; the file is as long as before.
    """
    size, rest = os.fstat(file.fileno()).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) or 0 :]
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise
