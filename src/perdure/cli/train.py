"""`perdure train ppo`: the trainer's options as flags; `perdure train torch-ppo` is in `train_torch`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli import train_torch
from perdure.cli.training import KEEP_LAST, cadence, require_trainer, retention, told, watch
from perdure.errors import UsageError
from perdure.runs.directory import open_directory

if TYPE_CHECKING:
    from perdure.cli.progress import Progress
    from perdure.nnx import NetworkConfig, TrainConfig, TrainResult

NOTE = "Their options: perdure train ppo --help, perdure train torch-ppo --help"


@dataclass(frozen=True)
class PPOCommand:
    """What the words after `perdure train ppo` say."""

    env: str
    """gymnax's name of the environment."""
    run: Path
    """The run's directory."""
    config: "TrainConfig"
    """The training."""
    networks: "NetworkConfig"
    """The networks."""
    keep_last: int
    """How many checkpoints stay; 0: all."""
    accept: tuple[str, ...]
    """Differences from the run that are accepted."""
    reason: str | None
    """Why."""
    stop_after: str | None
    """How long this process may run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments; the trainer's own are parsed by `parse_ppo`."""
    parser.epilog = NOTE
    parser.add_argument("trainer", choices=["ppo", "torch-ppo"], help="with JAX, or with PyTorch")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="…", help="the trainer's options")


def run(arguments: argparse.Namespace) -> int:
    """Trains to the horizon.

    Raises:
        UsageError: there is no such environment, or an option is refused.
        ContractError: the run in that directory was launched with other options.
        LockedError: another process trains it.
    """
    if arguments.trainer == "torch-ppo":
        return train_torch.run(arguments.options)
    require_trainer()
    command = parse_ppo(arguments.options)
    require_trainer(command.config.ppo.n_devices)
    keep = retention(command.keep_last)
    directory = open_directory(command.run)
    if directory.path.exists() and not directory.path.is_dir():
        raise UsageError(f"--run {directory.path}: a file stands there; a run is a directory.")
    check_buildable(command.env, command.networks, command.config.ppo.n_devices)

    def launch(progress: "Progress") -> "TrainResult":
        from perdure.nnx import launch_ppo

        return launch_ppo(
            command.env,
            command.config,
            directory.path,
            networks=command.networks,
            checkpoint_every=cadence(command.config.checkpoint_every_steps),
            keep=keep,
            log_fn=progress,
            accept=command.accept,
            reason=command.reason,
        )

    total_steps = command.config.ppo.total_steps
    print(f"perdure: {command.env}, {total_steps:,} steps, in {directory.path}", file=sys.stderr, flush=True)
    with told(directory, stop_after=command.stop_after):
        return watch(directory, total_steps, launch)


def parse_ppo(words: Sequence[str]) -> PPOCommand:
    """The words after `perdure train ppo`; tyro leaves with code 2 and a message if they cannot be right.

    Raises:
        UsageError: a value is out of range.
    """
    import tyro

    from perdure.nnx import EvalConfig, NetworkConfig, PPOConfig, TrainConfig

    defaults = TrainConfig()

    def command(
        *,
        env: str,
        run: Path,
        seed: int = defaults.seed,
        checkpoint_every_steps: int = defaults.checkpoint_every_steps,
        keep_last: int = KEEP_LAST,
        accept: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
        reason: str | None = None,
        stop_after: str | None = None,
        ppo: tyro.conf.OmitArgPrefixes[PPOConfig] = defaults.ppo,
        eval: EvalConfig = defaults.eval,
        networks: NetworkConfig = NetworkConfig(),  # noqa: B008 - a frozen value
    ) -> PPOCommand:
        """Train an actor-critic by PPO, or go on with the run in that directory under the same options.

        Args:
            env: gymnax's name of the environment, for instance CartPole-v1.
            run: The run's directory.
            seed: Seeds the environments, the sampling, the minibatches and the evaluations.
            checkpoint_every_steps: Env-steps between checkpoints; after ten minutes without one, one is saved anyway.
            keep_last: How many of the newest checkpoints stay, pinned ones aside; 0 for all. A resume keeps as many.
            accept: Differences from the run that are accepted, KEY=OLD:NEW each, as the refusal says them.
            reason: Why they are accepted, for the run's history.
            stop_after: How long this process may run, such as 3h55m; it then commits and leaves with code 75.
            ppo: The algorithm.
            eval: Evaluation, which never touches the training.
            networks: The networks.
        """
        if reason and not accept:
            raise ValueError("--reason says why something is accepted; give --accept too.")
        config = TrainConfig(ppo, eval, seed=seed, checkpoint_every_steps=checkpoint_every_steps)
        return PPOCommand(env, run, config, networks, keep_last, accept, reason, stop_after)

    try:
        return tyro.cli(command, args=list(words), prog="perdure train ppo")
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_buildable(env: str, networks: "NetworkConfig", n_devices: int) -> None:
    """Builds environment and networks once, so that the run's directory is not touched in vain.

    Raises:
        UsageError: there is no such environment, the networks cannot be built, or there are not so many devices.
    """
    from perdure.nnx.devices import mesh_of
    from perdure.nnx.launch import build

    try:
        mesh_of(n_devices)
        build(env, networks, seed=0)
    except ValueError as error:
        raise UsageError(str(error)) from error
