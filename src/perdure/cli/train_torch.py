"""`perdure train torch-ppo`: the trainer's options as flags."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.training import KEEP_LAST, cadence, require_torch, retention, told, watch
from perdure.errors import UsageError
from perdure.runs.directory import open_directory

if TYPE_CHECKING:
    from perdure.cli.progress import Progress
    from perdure.torch import PPOConfig, TrainResult
    from perdure.torch.launch import Schedules


@dataclass(frozen=True)
class TorchPPOCommand:
    """What the words after `perdure train torch-ppo` say."""

    env: str
    """Gymnasium's name of the environment."""
    run: Path
    """The run's directory."""
    config: "PPOConfig"
    """The training."""
    checkpoint_every: int
    """Env-steps between checkpoints."""
    keep_last: int
    """How many checkpoints stay; 0: all."""
    accept: tuple[str, ...]
    """Differences from the run that are accepted."""
    reason: str | None
    """Why."""
    schedules: "Schedules | None"
    """What another total than the run's does to the learning rate."""
    policy_every: int | None
    """Env-steps between policies; None: none."""
    stop_after: str | None
    """How long this process may run."""


def run(words: Sequence[str]) -> int:
    """Trains to the horizon.

    Raises:
        UsageError: there is no such environment, or an option is refused.
        ContractError: the run in that directory was launched with other options.
        LockedError: another process trains it.
    """
    require_torch()
    command = parse(words)
    keep, directory = retention(command.keep_last), open_directory(command.run)
    if directory.path.exists() and not directory.path.is_dir():
        raise UsageError(f"--run {directory.path}: a file stands there; a run is a directory.")
    from perdure.torch.launch import check_buildable

    check_buildable(command.env, command.config)

    def launch(progress: "Progress") -> "TrainResult":
        from perdure.torch import launch_ppo

        return launch_ppo(
            command.env,
            command.config,
            directory.path,
            checkpoint_every_steps=command.checkpoint_every,
            checkpoint_every=cadence(command.checkpoint_every),
            keep=keep,
            log_fn=progress,
            accept=command.accept,
            reason=command.reason,
            schedules=command.schedules,
            policy_every_steps=command.policy_every,
        )

    total_steps = command.config.total_timesteps
    print(f"perdure: {command.env}, {total_steps:,} steps, in {directory.path}", file=sys.stderr, flush=True)
    with told(directory, stop_after=command.stop_after):
        return watch(directory, total_steps, launch)


def parse(words: Sequence[str]) -> TorchPPOCommand:
    """The words after `perdure train torch-ppo`; tyro leaves with code 2 and a message if they cannot be right.

    Raises:
        UsageError: a value is out of range.
    """
    import tyro

    from perdure.torch import PPOConfig
    from perdure.torch.launch import CHECKPOINT_EVERY, Schedules, check_schedules

    def command(
        *,
        env: str,
        run: Path,
        checkpoint_every: int = CHECKPOINT_EVERY,
        keep_last: int = KEEP_LAST,
        policy_every: int | None = None,
        schedules: Schedules | None = None,
        accept: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
        reason: str | None = None,
        stop_after: str | None = None,
        config: tyro.conf.OmitArgPrefixes[PPOConfig] = PPOConfig(),  # noqa: B008 - a frozen value
    ) -> TorchPPOCommand:
        """Train an actor and a critic by PPO, or go on with the run in that directory under the same options.

        Args:
            env: Gymnasium's name of the environment, for instance CartPole-v1.
            run: The run's directory.
            checkpoint_every: Env-steps between checkpoints; after ten minutes without one, one is saved anyway.
            keep_last: How many of the newest checkpoints stay, pinned ones aside; 0 for all. A resume keeps as many.
            policy_every: Env-steps between policies (weights for inference), which all stay; the end exports one, too.
            schedules: What another total than the run's does to a falling learning rate: the old line is finished and
                0 stays (keep), or what is left of it is stretched over the steps that are left (restretch).
            accept: Differences from the run that are accepted, KEY=OLD:NEW each, as the refusal says them.
            reason: Why they are accepted, for the run's history.
            stop_after: How long this process may run, such as 3h55m; it then commits and leaves with code 75.
            config: The algorithm.
        """
        if reason and not accept:
            raise UsageError("--reason says why something is accepted; give --accept too.")
        if checkpoint_every < 1:
            raise UsageError(f"--checkpoint-every {checkpoint_every}: a positive number of env-steps.")
        if policy_every is not None and policy_every < 1:
            raise UsageError(f"--policy-every {policy_every}: a positive number of env-steps.")
        check_schedules(schedules, config)
        options = config, checkpoint_every, keep_last, accept, reason, schedules, policy_every, stop_after
        return TorchPPOCommand(env, run, *options)

    try:
        return tyro.cli(command, args=list(words), prog="perdure train torch-ppo")
    except ValueError as error:
        raise UsageError(str(error)) from error
