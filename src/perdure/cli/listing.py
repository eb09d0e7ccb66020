"""The runs and policies below a folder, each in one row. Manifests and last lines are read, tensor files never."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.checkpoint.policy import is_policy
from perdure.cli.output import age
from perdure.cli.targets import (
    PolicyTarget,
    RunTarget,
    agent_of,
    environment_of,
    horizon_of,
    size_of,
)
from perdure.errors import DamagedError, NoRunError
from perdure.format.policy import FILE_NAME as POLICY_FILE
from perdure.runs.directory import RunDirectory
from perdure.runs.loading import manifest_of_run
from perdure.runs.record import RunRecord, read_record
from perdure.runs.roles import read_role
from perdure.runs.state import state_of
from perdure.runs.tails import last_value


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
    agent: str | None = None
    """What is trained: a key such as `agent` or `algo` of the configuration, or the trainer, or the script."""
    state: str | None = None
    """Of a run: see `perdure.runs.state`; of a policy with a role: `current` or `superseded`."""
    metric: str | None = None
    """The metric that tells the return."""
    last_return: float | None = None
    """Its last value."""


def rows_below(folder: Path, metric: str | None = None) -> Iterator[Row]:
    """Every run, each followed by its policies; and policies that stand elsewhere.

    Args:
        folder: where.
        metric: what tells the return; None: see `perdure.runs.tails.return_name`.
    """
    for directory in find_runs(folder):
        if is_policy(directory.path):
            yield describe_policy(PolicyTarget(directory.path), folder)
            continue
        try:
            yield from _run_and_policies(directory, folder, metric)
        except OSError as error:  # of somebody else who shares the folder: no reason not to list the others
            yield _unreadable(directory, folder, str(error))


def _run_and_policies(directory: RunDirectory, folder: Path, metric: str | None) -> list[Row]:
    row = describe(directory, folder, metric)
    return [row, *(describe_policy(policy, folder) for policy in RunTarget(directory).policies())]


def _unreadable(directory: RunDirectory, folder: Path, problem: str) -> Row:
    return Row(
        run=os.path.relpath(directory.path, folder),
        env=None,
        env_steps=None,
        total_steps=None,
        checkpoint=None,
        continuation_class=None,
        size_bytes=0,
        age_s=None,
        amended=False,
        problem=problem,
    )


def find_runs(folder: Path) -> Iterator[RunDirectory]:
    """Every run and lone policy at or below a folder, by path; no links, and nothing that cannot be read."""
    for place, folders, files in os.walk(folder):
        directory = RunDirectory(Path(place).absolute())
        if directory.record.name in files or POLICY_FILE in files:
            folders.clear()
            yield directory
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))


def describe(directory: RunDirectory, folder: Path, metric: str | None = None) -> Row:
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
    env_steps, total = manifest.env_steps if manifest else None, horizon_of(contract)
    told = last_value(directory.metrics, metric)
    return Row(
        run=os.path.relpath(directory.path, folder),
        env=environment_of(contract),
        env_steps=env_steps,
        total_steps=total,
        checkpoint=name,
        continuation_class=manifest.fidelity if manifest else None,
        size_bytes=size_of(directory.path),
        age_s=age(created) if created else None,
        amended=bool(manifest and manifest.amended),
        problem="; ".join(problems) or None,
        agent=agent_of(contract, record.launch if record else {}),
        state=state_of(directory, env_steps, total),
        metric=told and told[0],
        last_return=told and told[1],
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
        agent=agent_of(manifest.contract, manifest.launch or {}) if manifest else None,
        state=_in_role(policy),
    )


def _in_role(policy: PolicyTarget) -> str | None:
    """Whether a policy has the role that it was promoted to."""
    try:
        history = read_role(policy.path.parent)
    except DamagedError:
        return None
    if policy.name not in [promotion.policy for promotion in history]:
        return None
    return "current" if history[-1].policy == policy.name else "superseded"


def _record(directory: RunDirectory, problems: list[str]) -> RunRecord | None:
    try:
        return read_record(directory.record)
    except (DamagedError, NoRunError) as error:
        problems.append(str(error))
        return None
