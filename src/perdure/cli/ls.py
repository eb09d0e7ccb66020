"""`perdure ls [DIR]`: the runs and policies below a folder."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.checkpoint.policy import is_policy
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import age, duration, print_json, print_table, size
from perdure.cli.targets import (
    POLICY_CLASS,
    PolicyTarget,
    RunTarget,
    class_of,
    environment_of,
    horizon_of,
    size_of,
)
from perdure.errors import DamagedError, NoRunError
from perdure.format.policy import FILE_NAME as POLICY_FILE
from perdure.runs.directory import RunDirectory
from perdure.runs.loading import manifest_of_run
from perdure.runs.record import RunRecord, read_record

HEAD = ("RUN", "ENV", "STEPS", "OF", "LAST CHECKPOINT", "CLASS", "SIZE", "AGE")


@dataclass(frozen=True)
class Row:
    """A run at a glance. Manifests are proven, tensor files are not read: `verify` does that."""

    run: str
    """Its directory, as seen from the folder."""
    env: str | None
    """Its environment's name, if the configuration tells it."""
    env_steps: int | None
    """Steps of its last checkpoint whose manifest is sound."""
    total_steps: int | None
    """Its horizon."""
    checkpoint: str | None
    """That checkpoint's name."""
    continuation_class: str | None
    """That checkpoint's class; None if there is none, or of a policy."""
    size_bytes: int
    """Of all its files."""
    age_s: float | None
    """Seconds since that checkpoint was committed, or the run was created."""
    amended: bool
    """Whether somebody accepted a difference from the run's first contract."""
    problem: str | None
    """What is wrong with the record, with a newer checkpoint or with the policy."""
    kind: str = "run"
    """`run` or `policy`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", type=Path, help="where to look (here)")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Lists the runs.

    Raises:
        NoRunError: there is no such folder.
    """
    folder = arguments.folder.expanduser()
    if not folder.is_dir():
        raise NoRunError(f"{folder}: no such directory. Check the spelling.")
    rows = list(_rows(folder))
    if arguments.json:
        print_json([asdict(row) for row in rows])
    elif rows:
        print_table([HEAD, *map(_cells, rows)], right=(2, 3, 6, 7))
        _print_problems(rows)
    else:
        print(f"no runs below {folder.absolute()}")
    return ExitCode.DONE


def _rows(folder: Path) -> Iterator[Row]:
    """Every run, each followed by its policies; and policies that stand elsewhere."""
    for directory in find_runs(folder):
        if is_policy(directory.path):
            yield describe_policy(PolicyTarget(directory.path), folder)
            continue
        yield describe(directory, folder)
        yield from (describe_policy(policy, folder) for policy in RunTarget(directory).policies())


def find_runs(folder: Path) -> Iterator[RunDirectory]:
    """Every run and lone policy at or below a folder, by path; no links, and nothing that cannot be read."""
    for place, folders, files in os.walk(folder):
        directory = RunDirectory(Path(place).absolute())
        if directory.record.name in files or POLICY_FILE in files:
            folders.clear()
            yield directory
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))


def describe(directory: RunDirectory, folder: Path) -> Row:
    """A run's row."""
    problems: list[str] = []
    record = _record(directory, problems)
    name, manifest = None, None
    for checkpoint in RunTarget(directory).checkpoints():
        try:
            manifest = manifest_of_run(checkpoint.store, checkpoint.name, record and record.run_id)
            name = checkpoint.name
            break
        except DamagedError as error:
            problems.append(str(error))
    contract = manifest.contract if manifest else record.contract if record else {}
    created = manifest.created if manifest else record.created if record else None
    return Row(
        run=os.path.relpath(directory.path, folder),
        env=environment_of(contract),
        env_steps=manifest.env_steps if manifest else None,
        total_steps=horizon_of(contract),
        checkpoint=name,
        continuation_class=manifest.fidelity if manifest else None,
        size_bytes=size_of(directory.path),
        age_s=age(created) if created else None,
        amended=bool(manifest and manifest.amended),
        problem="; ".join(problems) or None,
    )


def describe_policy(policy: PolicyTarget, folder: Path) -> Row:
    """A policy's row."""
    problem, manifest = None, None
    try:
        manifest = policy.manifest()
    except DamagedError as error:
        problem = str(error)
    env = (manifest.environment.get("id") or environment_of(manifest.contract)) if manifest else None
    return Row(
        run=os.path.relpath(policy.path, folder),
        env=env,
        env_steps=manifest.env_steps if manifest else None,
        total_steps=None,
        checkpoint=manifest.checkpoint if manifest else None,
        continuation_class=None,
        size_bytes=size_of(policy.path),
        age_s=age(manifest.created) if manifest else None,
        amended=bool(manifest and manifest.amended),
        problem=problem,
        kind="policy",
    )


def _record(directory: RunDirectory, problems: list[str]) -> RunRecord | None:
    try:
        return read_record(directory.record)
    except (DamagedError, NoRunError) as error:
        problems.append(str(error))
        return None


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.run,
        row.env or "–",
        "–" if row.env_steps is None else f"{row.env_steps:,}",
        "–" if row.total_steps is None else f"{row.total_steps:,}",
        (row.checkpoint or "none") + (" !" if row.problem else ""),
        _class(row) + (", amended" if row.amended else ""),
        size(row.size_bytes),
        "–" if row.age_s is None else duration(row.age_s),
    )


def _class(row: Row) -> str:
    if row.kind == "policy":
        return POLICY_CLASS
    return class_of(row.continuation_class) if row.continuation_class else "–"


def _print_problems(rows: list[Row]) -> None:
    for row in rows:
        if row.problem:
            print(f"! {row.run}: {row.problem}")
