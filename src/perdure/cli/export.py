"""`perdure export RUN --to PATH`: a policy from a checkpoint of a run."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.checkpoint.opening import open_checkpoint
from perdure.cli.exit_codes import ExitCode
from perdure.cli.targets import CheckpointTarget, RunTarget, find_target
from perdure.cli.trainers import trainer_named
from perdure.errors import NoCheckpointError, UsageError
from perdure.format.manifest import Manifest
from perdure.runs.directory import RunDirectory, step_name, steps_of
from perdure.runs.loading import newest_intact
from perdure.runs.normaliser import NAME as NORMALISER
from perdure.runs.policies import store_of
from perdure.runs.policy_record import export_checkpoint
from perdure.runs.record import read_record
from perdure.runs.resumption import latest_launch, read_history

NOTE = """\
A policy is weights (and normalisers) for inference: it cannot be resumed. Which components it is made of is said by
--components; a run of `perdure train` knows it, and a run that has exported policies is taken at its newest one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument("run", metavar="RUN", help="a run's directory, which may be training, or a checkpoint's")
    parser.add_argument("--to", metavar="PATH", required=True, help="the policy's directory; it must not exist")
    parser.add_argument("--step", metavar="STEP", type=int, help="the checkpoint's env-steps (the newest intact one)")
    parser.add_argument("--components", metavar="A,B", help="the components that are the policy")


def run(arguments: argparse.Namespace) -> int:
    """Exports.

    Raises:
        NothingToLoadError: no run, no such checkpoint, or nothing intact.
        DamagedError: the checkpoint is damaged.
        UsageError: nobody says which components, there are no such, or something stands at PATH.
    """
    target = find_target(arguments.run)
    if isinstance(target, CheckpointTarget) and arguments.step is not None:
        raise UsageError("export --step: is for a run; a checkpoint is itself one step.")
    if Path(arguments.to).expanduser().exists():
        raise UsageError(f"{arguments.to}: there is something already; give the policy a directory of its own.")
    checkpoint = target if isinstance(target, CheckpointTarget) else _checkpoint(target, arguments.step)
    directory, manifest = checkpoint.run, checkpoint.manifest()
    launch = _launch(directory)
    components = _components(arguments.components, directory, launch, manifest)
    exported, problem = export_checkpoint(
        checkpoint.store, checkpoint.name, components, store_of(arguments.to), launch=launch
    )
    place = Path(arguments.to).expanduser().absolute()
    print(f"{place}: a policy (evaluation only) of {', '.join(exported)}, step {manifest.env_steps:,}")
    if problem is not None:
        print(f"perdure: {place}: {problem}", file=sys.stderr)
    if launch.get("kind") == "trainer":
        print(f"play it with: perdure eval {shlex.quote(str(place))}")
    return ExitCode.DONE


def _checkpoint(target: RunTarget, env_steps: int | None) -> CheckpointTarget:
    directory = target.directory
    if env_steps is None:
        target.newest()
        found = newest_intact(directory.store(), str(directory.path), read_record(directory.record).run_id)
        return CheckpointTarget(directory.checkpoints / found.opened.name)
    checkpoints = target.checkpoints()
    if step_name(env_steps) not in [checkpoint.name for checkpoint in checkpoints]:
        steps = ", ".join(str(steps_of(checkpoint.name)) for checkpoint in checkpoints) or "none"
        raise NoCheckpointError(f"{directory.path}: no checkpoint at {env_steps} env-steps; there are: {steps}.")
    chosen = CheckpointTarget(directory.checkpoints / step_name(env_steps))
    open_checkpoint(chosen.store, chosen.name)
    return chosen


def _launch(directory: RunDirectory | None) -> Mapping[str, Any]:
    if directory is None:
        return {}
    return latest_launch(read_record(directory.record), read_history(directory)[0])


def _components(
    told: str | None, directory: RunDirectory | None, launch: Mapping[str, Any], manifest: Manifest
) -> list[str]:
    """What is said, or what the trainer knows, or what the run's newest policy holds."""
    if told is not None:
        return [name.strip() for name in told.split(",") if name.strip()]
    trainer = trainer_named(launch.get("name")) if launch.get("kind") == "trainer" else None
    if trainer is not None:
        return list(trainer.policy)
    policies = RunTarget(directory).policies() if directory is not None else []
    if policies:
        return sorted(policies[0].manifest().components.keys() - {NORMALISER})
    listed = ", ".join(f"{name} ({entry.adapter})" for name, entry in sorted(manifest.components.items()))
    raise UsageError(f"export: say which components are the policy, --components A,B; the checkpoint has {listed}.")
