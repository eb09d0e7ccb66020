"""`perdure export RUN --to PATH`: a policy from a checkpoint of a run."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.cli.exit_codes import ExitCode
from perdure.cli.targets import RunTarget
from perdure.cli.trainers import trainer_named
from perdure.cli.which import add_which, checkpoint_of
from perdure.errors import UsageError
from perdure.format.manifest import Manifest
from perdure.runs.directory import RunDirectory
from perdure.runs.normaliser import NAME as NORMALISER
from perdure.runs.policies import store_of
from perdure.runs.policy_record import export_checkpoint
from perdure.runs.record import read_record
from perdure.runs.resumption import latest_launch, read_history

NOTE = """\
A policy is weights (and normalisers) for inference: it cannot be resumed. Which components it is made of is said by
--components; a run of `perdure train` knows it, as do scripts with Run(policy=…) and runs that have exported policies.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    add_which(parser)
    parser.add_argument("--to", metavar="PATH", required=True, help="the policy's directory; it must not exist")
    parser.add_argument("--step", metavar="STEP", type=int, help="the same as STEP behind the run")
    parser.add_argument("--components", metavar="A,B", help="the components that are the policy")


def run(arguments: argparse.Namespace) -> int:
    """Exports.

    Raises:
        NothingToLoadError: no run, no such checkpoint, or nothing intact.
        DamagedError: the checkpoint is damaged.
        UsageError: nobody says which components, there are no such, or something stands at PATH.
    """
    if arguments.step is not None and arguments.which is not None:
        raise UsageError(f"export --step {arguments.step}: {arguments.which} says another checkpoint; say one.")
    if Path(arguments.to).expanduser().exists():
        raise UsageError(f"{arguments.to}: there is something already; give the policy a directory of its own.")
    arguments.which = str(arguments.step) if arguments.step is not None else arguments.which
    checkpoint = checkpoint_of(arguments)
    directory, manifest = checkpoint.run, checkpoint.manifest()
    launch = launch_in(directory)
    components = components_of(arguments.components, directory, launch, manifest)
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


def launch_in(directory: RunDirectory | None) -> Mapping[str, Any]:
    """How the run was launched last; empty if there is none."""
    if directory is None:
        return {}
    return latest_launch(read_record(directory.record), read_history(directory)[0])


def components_of(
    told: str | None,
    directory: RunDirectory | None,
    launch: Mapping[str, Any],
    manifest: Manifest,
    *,
    way_out: str = "--components A,B",
) -> list[str]:
    """What is said (`A,B`), or what the trainer knows, the script said or the run's newest policy holds.

    `way_out` says how to say it, for the error.

    Raises:
        UsageError: nobody says it.
    """
    if told is not None:
        return [name.strip() for name in told.split(",") if name.strip()]
    trainer = trainer_named(launch.get("name")) if launch.get("kind") == "trainer" else None
    if trainer is not None:
        return list(trainer.policy)
    known = _known_in(directory) if directory is not None else []
    if known:
        return known
    listed = ", ".join(f"{name} ({entry.adapter})" for name, entry in sorted(manifest.components.items()))
    raise UsageError(f"say which components are the policy, {way_out}; the checkpoint has {listed}.")


def _known_in(directory: RunDirectory) -> list[str]:
    """What `Run(policy=…)` names, as the lineage tells, or what the newest policy is made of."""
    openings = [event for event in read_history(directory)[0] if event["event"] in ("started", "resumed")]
    told = [event.get("policy") for event in openings]
    if told and told[-1]:
        return told[-1]
    policies = RunTarget(directory).policies()
    return sorted(policies[0].manifest().components.keys() - {NORMALISER}) if policies else []
