"""Examining a run or a checkpoint: every byte is read, nothing is changed, all that is wrong is collected."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.checkpoint.opening import Opened
from perdure.cli.metric_streams import read_stream
from perdure.cli.targets import CheckpointTarget, PolicyTarget, RunTarget
from perdure.contract.comparison import compare
from perdure.errors import DamagedError, NoRunError
from perdure.format.digests import digest_of
from perdure.format.manifest import FILE_NAME, Manifest
from perdure.runs.directory import RunDirectory, steps_of
from perdure.runs.lineage import read_lineage
from perdure.runs.record import RunRecord, read_record
from perdure.store.local import STAGING_PREFIX

LEFTOVERS = (STAGING_PREFIX, ".removed.")


@dataclass(frozen=True)
class Examined:
    """A checkpoint that was read."""

    name: str
    """Its directory's name."""
    problem: str | None
    """The damaged part; None if it is intact."""
    size_bytes: int
    """Of its tensor files; 0 if it is damaged."""
    notes: tuple[str, ...]
    """What stands in it beside what was written."""
    manifest: Manifest | None
    """Its manifest, if it is intact."""


@dataclass(frozen=True)
class Report:
    """All that was found."""

    path: Path
    """What was examined."""
    checkpoints: tuple[Examined, ...]
    """The newest first."""
    problems: tuple[str, ...]
    """Damage outside of the checkpoints: record, lineage, metrics."""
    notes: tuple[str, ...]
    """What is no damage but worth knowing."""
    kind: str = "checkpoints"
    """`checkpoints`, or `policy`: then the one that was examined is a policy."""

    @property
    def intact(self) -> list[str]:
        """Names of the intact checkpoints, the newest first."""
        return [checkpoint.name for checkpoint in self.checkpoints if checkpoint.problem is None]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems and len(self.intact) == len(self.checkpoints)


def examine_checkpoint(target: CheckpointTarget) -> Examined:
    """Opens one checkpoint and reads all of it; its memory is freed before this returns."""
    try:
        opened = target.open()
    except DamagedError as error:
        return Examined(target.name, str(error), 0, (), None)
    return Examined(target.name, None, opened.manifest.size_bytes, tuple(_strays(target, opened)), opened.manifest)


def examine_policy(target: PolicyTarget) -> Examined:
    """Opens one policy and reads all of it."""
    try:
        opened = target.open()
    except DamagedError as error:
        return Examined(target.name, str(error), 0, (), None)
    return Examined(target.name, None, opened.manifest.size_bytes, (), None)


def _strays(target: CheckpointTarget, opened: Opened) -> Iterator[str]:
    known = {FILE_NAME, *opened.manifest.files}
    for path in sorted(target.path.iterdir()):
        if path.name not in known:
            yield f"{target.name}/{path.name}: not part of the checkpoint"


def examine_run(target: RunTarget) -> Report:
    """Reads a whole run."""
    run = target.directory
    checkpoints = tuple(examine_checkpoint(checkpoint) for checkpoint in target.checkpoints())
    intact = [checkpoint.manifest for checkpoint in checkpoints if checkpoint.manifest is not None]
    problems, notes = [], [note for checkpoint in checkpoints for note in checkpoint.notes]
    try:
        record = read_record(run.record)
        problems += [*_contract_problems(record, checkpoints), *_patch_problems(run, record)]
    except (DamagedError, NoRunError) as error:
        problems.append(str(error))
    _examine_lineage(run, problems, notes, expected=bool(checkpoints))
    if intact:
        _examine_metrics(run, intact[0], problems, notes)
    notes += _others(run)
    examined = (examine_policy(policy) for policy in target.policies())
    problems += [f"{run.policies.name}/{policy.problem}" for policy in examined if policy.problem is not None]
    return Report(run.path, checkpoints, tuple(problems), tuple(notes))


def _patch_problems(run: RunDirectory, record: RunRecord) -> Iterator[str]:
    """What differs between the patch beside the record and the one that the record counts."""
    digest = record.code and record.code.get("patch_digest")
    if digest and not run.patch.is_file():
        yield f"{run.patch.name}: is missing"
    elif digest and digest_of(run.patch.read_bytes()) != digest:
        yield f"{run.patch.name}: not what was written when the run began"


def _contract_problems(record: RunRecord, checkpoints: tuple[Examined, ...]) -> Iterator[str]:
    for checkpoint in checkpoints:
        if checkpoint.manifest is not None:
            keys = list(_unexplained(record, checkpoint.manifest))
            if keys:
                yield f"{checkpoint.name}: was written under another configuration than run.json's: {', '.join(keys)}"


def _unexplained(record: RunRecord, manifest: Manifest) -> Iterator[str]:
    """Keys that differ from the run's first contract although nobody accepted that; totals may change without."""
    for finding in compare(record.contract, manifest.contract):
        if finding.section != "horizon" and not any(text.startswith(f"{finding.key}=") for text in manifest.amended):
            yield finding.key


def _examine_lineage(run: RunDirectory, problems: list[str], notes: list[str], *, expected: bool) -> None:
    if not run.lineage.exists():
        if expected:
            problems.append(f"{run.lineage.name}: is missing")
        return
    try:
        read_lineage(run.lineage)
    except DamagedError as error:
        problems.append(str(error))
    if not run.lineage.read_bytes().endswith(b"\n"):
        notes.append(f"{run.lineage.name}: its last line is cut; the next resume drops it")


def _examine_metrics(run: RunDirectory, newest: Manifest, problems: list[str], notes: list[str]) -> None:
    stream = read_stream(run, newest.metrics)
    if stream.problem is not None:
        problems.append(stream.problem)
    elif stream.bytes_after:
        notes.append(
            f"{run.metrics.name}: {stream.bytes_after:,} bytes after the newest intact checkpoint; a resume cuts them"
        )


def _others(run: RunDirectory) -> Iterator[str]:
    """What else stands in the folders of checkpoints."""
    for path in sorted(run.checkpoints.iterdir()) if run.checkpoints.is_dir() else ():
        place = f"{run.checkpoints.name}/{path.name}"
        if path.name.startswith(LEFTOVERS):
            yield f"{place}: unfinished; a running process is at it, or the next resume removes it"
        elif steps_of(path.name) is None or not path.is_dir() or path.is_symlink():
            yield f"{place}: not a checkpoint; perdure leaves it alone"
    for path in sorted(run.damaged.iterdir()) if run.damaged.is_dir() else ():
        yield f"{run.damaged.name}/{path.name}: a damaged checkpoint that a resume stepped back from"
