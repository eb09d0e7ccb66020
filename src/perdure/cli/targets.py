"""What a user points at: a run, a checkpoint or a policy."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.checkpoint.opening import Opened, open_checkpoint, read_manifest
from perdure.checkpoint.policy import OpenedPolicy, is_policy, open_policy, read_policy_manifest, refuse_policy
from perdure.contract.horizon import total_of
from perdure.errors import DamagedError, NoCheckpointError, NoRunError
from perdure.format.manifest import FILE_NAME, Manifest
from perdure.format.policy import PolicyManifest
from perdure.runs.choosing import checkpoint_path
from perdure.runs.directory import RunDirectory, newest_first, steps_of
from perdure.runs.loading import manifest_of_run, open_of_run
from perdure.runs.policies import policies_of
from perdure.runs.record import read_record
from perdure.runs.retention import Order
from perdure.runs.roles import resolved
from perdure.store.local import LocalStore


@dataclass(frozen=True)
class _InStore:
    """A directory that a store has committed."""

    path: Path
    """The directory, absolute."""

    @property
    def name(self) -> str:
        """Its name in its store."""
        return self.path.name

    @property
    def store(self) -> LocalStore:
        """The store that it stands in."""
        return LocalStore(self.path.parent, self.path.parent.parent / "damaged")


@dataclass(frozen=True)
class CheckpointTarget(_InStore):
    """One checkpoint directory, of a run or of `perdure.save`."""

    @property
    def run(self) -> RunDirectory | None:
        """The run that it stands in; None if it stands alone."""
        run = RunDirectory(self.path.parent.parent)
        return run if self.path.parent == run.checkpoints and run.record.exists() else None

    def open(self) -> Opened:
        """Reads and verifies all of it.

        Raises:
            DamagedError: it is not what was written, or not where it was written.
        """
        run = self.run
        if run is None:
            return open_checkpoint(self.store, self.name)
        return open_of_run(self.store, self.name, run_id(run))

    def manifest(self) -> Manifest:
        """The manifest alone, proven by its own digest.

        Raises:
            DamagedError: it is not what was written, or not where it was written.
        """
        run = self.run
        return (
            read_manifest(self.store, self.name)[0]
            if run is None
            else manifest_of_run(self.store, self.name, run_id(run))
        )


@dataclass(frozen=True)
class PolicyTarget(_InStore):
    """A policy's directory."""

    def manifest(self) -> PolicyManifest:
        """The manifest alone, proven by its own digest.

        Raises:
            DamagedError: it is not what was written.
        """
        return read_policy_manifest(self.store, self.name)[0]

    def open(self) -> OpenedPolicy:
        """Reads and verifies all of it.

        Raises:
            DamagedError: it is not what was written.
        """
        return open_policy(self.store, self.name)


@dataclass(frozen=True)
class RunTarget:
    """A run's directory."""

    directory: RunDirectory
    """Where everything of the run stands."""

    def checkpoints(self) -> list[CheckpointTarget]:
        """Its checkpoints, the newest first."""
        names = newest_first(self.directory.store().names())
        return [CheckpointTarget(self.directory.checkpoints / name) for name in names]

    def policies(self) -> list[PolicyTarget]:
        """Its policies, the newest first."""
        return [PolicyTarget(self.directory.policies / name) for name in policies_of(self.directory)]

    def newest(self) -> CheckpointTarget:
        """Its newest checkpoint, intact or not.

        Raises:
            NoCheckpointError: it has none.
        """
        checkpoints = self.checkpoints()
        if checkpoints:
            return checkpoints[0]
        set_aside = self.directory.damaged.is_dir() and any(self.directory.damaged.iterdir())
        why = (
            "all were damaged and stand under damaged/"
            if set_aside
            else "it was stopped before the first was committed"
        )
        raise NoCheckpointError(f"{self.directory.path}: the run has no checkpoint; {why}.")


Target = RunTarget | CheckpointTarget

POLICY_CLASS = "policy (evaluation only)"


def class_of(fidelity: str) -> str:
    """What a checkpoint is, in words."""
    return f"checkpoint (resumable: {fidelity})"


def find_policy(text: str | os.PathLike[str]) -> PolicyTarget | None:
    """The policy at a path, or the one that has the role at the path; None if something else or nothing stands there.

    Raises:
        NoCheckpointError: the role's policy is gone.
        DamagedError: the role's file is damaged, or another policy stands in the place of the promoted one.
    """
    path = resolved(Path(text).expanduser().resolve())
    return PolicyTarget(path) if is_policy(path) else None


Contract = Mapping[str, Mapping[str, Any]]


def find_target(text: str | os.PathLike[str]) -> Target:
    """The run or checkpoint at a path; `RUN@best`, `RUN@latest` and `RUN@STEP` are checkpoints of a run.

    Raises:
        NoRunError: nothing is there, or something else.
        NoCheckpointError: the run has no such checkpoint.
        UsageError: a policy is there, or nobody says what is best.
    """
    path = Path(text).expanduser().resolve()
    run_text, at, which = os.fspath(text).rpartition("@")
    if at and not path.exists():
        return chosen_target(run_text, which)
    run = RunDirectory(path)
    refuse_policy(path, "a run or a checkpoint")
    if not path.is_dir():
        is_file = "a file, and neither a run nor a checkpoint of perdure; `perdure show` says what it is."
        missing = "no such directory. Check the spelling; `perdure ls` lists runs."
        raise NoRunError(f"{path}: {is_file if path.exists() else missing}")
    if run.record.exists() or run.checkpoints.is_dir():
        return RunTarget(run)
    if (path / FILE_NAME).exists() or steps_of(path.name) is not None:
        return CheckpointTarget(path)
    hint = ""
    if RunDirectory(path.parent).record.exists():
        hint = f" Did you mean {path.parent}?"
    elif any(path.glob("*/run.json")):
        hint = f" There are runs in it: `perdure ls {shlex.quote(os.fspath(text))}` lists them."
    raise NoRunError(f"{path}: neither a run (no run.json in it) nor a checkpoint (no {FILE_NAME} in it).{hint}")


def chosen_target(run: str, text: str, metric: str | None = None, mode: Order | None = None) -> CheckpointTarget:
    """The checkpoint of a run that `best`, `best:METRIC`, `best:METRIC:min`, `latest` or `STEP` stands for.

    Raises:
        NoRunError: there is no run.
        NoCheckpointError: the run has no such checkpoint.
        UsageError: the text means none of these, or nobody says what is best.
    """
    head, _, ranking = text.partition(":")
    if head == "best" and ranking and metric is None:
        name, _, last = ranking.rpartition(":")
        metric, mode = (name, "min" if last == "min" else "max") if name and last in ("min", "max") else (ranking, mode)
        text = head
    which = int(text) if text.isdecimal() else text
    path = checkpoint_path(Path(run).expanduser().resolve(), which, metric=metric, mode=mode)
    return CheckpointTarget(path)


def run_id(run: RunDirectory) -> str | None:
    """The run's id; None if its record cannot be read."""
    try:
        return read_record(run.record).run_id
    except (DamagedError, NoRunError):
        return None


def environment_of(contract: Contract) -> str | None:
    """The environment's name, where the contract tells it under a usual key."""
    return _told_under(("env_id", "env", "environment", "env_name"), contract)


def agent_of(contract: Contract, launch: Mapping[str, Any]) -> str | None:
    """What is trained, where the contract tells it under a usual key; else the trainer, or the script's name."""
    told = _told_under(("agent", "algo", "algorithm", "exp_name"), contract)
    if told is not None or launch.get("kind") == "trainer":
        return told if told is not None else str(launch.get("name"))
    words = [str(word) for word in launch.get("argv") or str(launch.get("withheld", "")).split()]
    script = next((word for word in words[1:] if word.endswith(".py")), None)
    if script is None and "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return script and Path(script).stem


def _told_under(usual: Sequence[str], contract: Contract) -> str | None:
    values = {key.split(".")[-1]: value for section in contract.values() for key, value in section.items()}
    return next((str(values[key]) for key in usual if values.get(key) is not None), None)


def horizon_of(contract: Contract) -> int | None:
    """The total of environment steps that the contract states."""
    return total_of(contract.get("horizon", {}))


def size_of(path: Path) -> int:
    """Bytes of all files below a directory; a file with several names counts once."""
    sizes = {}
    for place, _, files in os.walk(path):
        for file in files:
            try:
                status = (Path(place) / file).lstat()
            except FileNotFoundError:  # a running process has just moved it
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
