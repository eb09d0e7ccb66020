"""Forking: a new run with its own identity that begins at a checkpoint of another run, and remembers it."""

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.checkpoint.opening import read_manifest
from perdure.errors import DamagedError, NoCheckpointError, UsageError
from perdure.format.digests import digest_of
from perdure.format.manifest import FILE_NAME, Manifest, encode_manifest, manifest_digest
from perdure.runs.directory import (
    RunDirectory,
    newest_first,
    open_directory,
    step_name,
    steps_of,
)
from perdure.runs.lineage import Lineage
from perdure.runs.loading import check_place
from perdure.runs.ownership import foreign_hand
from perdure.runs.record import RunRecord, new_run_id, read_record, write_record
from perdure.runs.resumption import Event, latest_launch, read_history
from perdure.store.small_files import replace_durably, sync_directory


def fork(run: str | os.PathLike[str], env_steps: int, to: str | os.PathLike[str]) -> None:
    """Begins a run at a checkpoint of another one.

    The new run holds its own copy of the checkpoint, of the metric rows up to there, and of the contract. It is there
    whole or not at all. The other run is only read; it may be training.

    Args:
        run: the other run's directory.
        env_steps: the checkpoint's env-steps.
        to: the new run's directory; it must not exist.

    Raises:
        NoRunError: there is no run at `run`.
        NoCheckpointError: the run has no such checkpoint.
        DamagedError: the checkpoint is not what was written.
        UsageError: there is something at `to` already, or no folder can be made there.
    """
    source, target = open_directory(run), open_directory(to)
    record = read_record(source.record)
    if os.path.lexists(target.path):
        raise UsageError(f"{target.path}: there is something already; give the new run a directory of its own.")
    if target.path.resolve().is_relative_to(source.path.resolve()):
        raise UsageError(f"{target.path}: inside of the run that is forked; choose a place beside it.")
    manifest, digest = _manifest(source, record, env_steps)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{target.path}: a folder above it is a file; choose another place.") from error
    staging = RunDirectory(target.path.parent / f".fork.{secrets.token_hex(8)}")
    staging.path.mkdir()
    try:
        _fill(source, staging, target, record, manifest, digest)
        sync_directory(staging.path)
        staging.path.rename(target.path)
    except BaseException:
        shutil.rmtree(staging.path)
        raise
    sync_directory(target.path.parent)


def _manifest(source: RunDirectory, record: RunRecord, env_steps: int) -> tuple[Manifest, str]:
    name = step_name(env_steps)
    there = source.store().names()
    if name not in there:
        steps = ", ".join(str(steps_of(name)) for name in newest_first(there)) or "none"
        raise NoCheckpointError(f"{source.path}: no checkpoint at {env_steps} env-steps; there are: {steps}.")
    manifest, digest = read_manifest(source.store(), name)
    check_place(name, manifest, record.run_id)
    return manifest, digest


def _fill(
    source: RunDirectory,
    staging: RunDirectory,
    target: RunDirectory,
    record: RunRecord,
    manifest: Manifest,
    digest: str,
) -> None:
    name = step_name(manifest.env_steps)
    parent = {"run_id": record.run_id, "checkpoint": name, "digest": digest}
    history, _ = read_history(source)
    launch = aimed_at(_launch_before(manifest.env_steps, record, history), source.path, target.path)
    if launch.get("kind") == "script" and foreign_hand(source) is not None:
        launch = {**launch, "argv": []}  # in a directory of this user's it would be taken for this user's command
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    child = RunRecord(new_run_id(), created, launch, manifest.contract, manifest.arithmetic, parent)
    lineage = Lineage(staging.lineage)
    lineage.append("started", run_id=child.run_id, forked_from=parent, notices=[])
    own_digest = _copy_checkpoint(source, staging, name, replace(manifest, run_id=child.run_id, parent=digest))
    lineage.append("committed", checkpoint=name, digest=own_digest)
    _copy_metrics(source, staging, manifest)
    write_record(staging.record, child)


def _launch_before(env_steps: int, record: RunRecord, history: Iterable[Event]) -> Mapping[str, Any]:
    """How the process that made the checkpoint was launched: what a later resume changed is not in it.

    A run holds no checkpoint newer than the one that it went on from, so whatever came after that is the later one's.
    """
    return latest_launch(record, (event for event in history if event.get("env_steps", -1) < env_steps))


def _copy_checkpoint(source: RunDirectory, staging: RunDirectory, name: str, manifest: Manifest) -> str:
    """Copies file by file, each compared with its digest; returns the digest of the new manifest."""
    store = source.store()
    with staging.store().stage(name) as copy:
        for file, entry in manifest.files.items():
            try:
                data = store.read(name, file)
            except FileNotFoundError as error:
                message = f"{source.path}: {name}/{file}: missing, or removed meanwhile; pin the checkpoint, then fork."
                raise DamagedError(message) from error
            if data.nbytes != entry.size or digest_of(data.data) != entry.digest:
                raise DamagedError(f"{source.path}: {name}/{file}: not what was written. Fork at another step.")
            copy.write(file, [data.data])
        encoded = encode_manifest(manifest)
        copy.write(FILE_NAME, [encoded])
        copy.commit()
    return manifest_digest(encoded)


def _copy_metrics(source: RunDirectory, staging: RunDirectory, manifest: Manifest) -> None:
    """The rows that the checkpoint counts. If they are not there any more, the first resume says so."""
    if manifest.metrics is None or not source.metrics.exists():
        return
    with source.metrics.open("rb") as rows:
        replace_durably(staging.metrics, rows.read(int(manifest.metrics["offset"])))


def aimed_at(launch: Mapping[str, Any], old: Path, new: Path) -> Mapping[str, Any]:
    """How the new run is launched: as the old one, but for its directory.

    A script's command line is taken over only if it names the old run, for it would train that one again; else the new
    run has no command, and `perdure resume` asks for it.
    """
    if launch.get("kind") != "script":
        return launch
    cwd = Path(str(launch["cwd"]))
    words = [_aimed_word(word, cwd, old, new) for word in launch["argv"]]
    return {**launch, "argv": words if words != launch["argv"] else []}


def _aimed_word(word: str, cwd: Path, old: Path, new: Path) -> str:
    """The word, or what stands behind a `=` in it, if that is the old run's path."""
    starts = [0, *(at + 1 for at, letter in enumerate(word) if letter == "=")]
    at = next((at for at in starts if word[at:] and os.path.realpath(cwd / word[at:]) == os.path.realpath(old)), None)
    return word if at is None else f"{word[:at]}{new}"
