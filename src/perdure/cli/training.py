"""What `train` and `resume` share: a trainer that runs in this process, watched and summed up."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol

from perdure.cli.exit_codes import ExitCode
from perdure.cli.notices import shown_notices
from perdure.cli.output import duration
from perdure.cli.progress import Progress
from perdure.errors import UsageError
from perdure.runs.cadence import Every
from perdure.runs.directory import RunDirectory, newest_first
from perdure.runs.durations import seconds
from perdure.runs.retention import Keep

MINUTES_BETWEEN_CHECKPOINTS = 10

KEEP_LAST = 2
"""Checkpoints that stay unless --keep-last says otherwise."""


class Trained(Protocol):
    """What a trainer returns."""

    @property
    def total_steps(self) -> int:
        """Env-steps taken, those before a resume included."""
        ...


Launch = Callable[[Progress], Trained]
"""Trains to the end; calls what it is given once an iteration."""


def cadence(checkpoint_every_steps: int) -> Every:
    """When the tool's trainers save: by steps, and by the clock in case steps are slow."""
    return Every(env_steps=checkpoint_every_steps, minutes=MINUTES_BETWEEN_CHECKPOINTS)


def retention(keep_last: int) -> Keep | None:
    """What --keep-last means: so many of the newest checkpoints stay, all of them for 0.

    Raises:
        UsageError: a negative number.
    """
    if keep_last < 0:
        raise UsageError(f"--keep-last {keep_last}: how many checkpoints stay; 0 for all.")
    return Keep(last=keep_last) if keep_last else None


def watch(directory: RunDirectory, total_steps: int, launch: Launch) -> int:
    """Runs a trainer with a progress line and its notices on stderr; says on stdout how it ended."""
    progress, started = Progress(directory, total_steps), time.monotonic()
    try:
        with shown_notices(progress.close):
            result = launch(progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"go on with: perdure resume {directory.path}") from None
    finally:
        progress.close()
    newest = next(newest_first(directory.store().names()))
    if progress.iterations == 0:
        print(f"{directory.path}: finished already, at {result.total_steps:,} steps ({newest}).")
        return ExitCode.DONE
    last = "" if progress.last_return is None else f", return {progress.last_return:.1f}"
    spent = duration(time.monotonic() - started)
    print(f"{directory.path}: finished at {result.total_steps:,} steps{last}, in {spent} ({newest}).")
    return ExitCode.DONE


@contextmanager
def told(directory: RunDirectory, *, stop_after: str | None, retry: bool = False) -> Iterator[None]:
    """Tells the run that a trainer opens in this process what `perdure resume` tells one of a script.

    Raises:
        UsageError: no span of time.
    """
    if stop_after is not None:
        seconds("--stop-after", stop_after)
    words = environment_for(directory, stop_after=stop_after, retry=retry)
    before = {name: os.environ.get(name) for name in words}
    os.environ.update(words)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def environment_for(directory: RunDirectory, *, stop_after: str | None, retry: bool) -> dict[str, str]:
    """Environment variables that tell a run when to stop, and that it may fail once more."""
    words = {} if stop_after is None else {"PERDURE_STOP_AFTER": stop_after}
    words |= {"PERDURE_RETRY": "1"} if retry else {}
    return {**words, "PERDURE_RUN_DIR": str(directory.path)} if words else {}


def require_trainer(n_devices: int | None = None, extra: str = "gymnax") -> None:
    """Loads the trainers, after JAX was told how many devices a CPU is to count as: gymnax makes JAX look.

    Args:
        n_devices: so many; None if that is not known yet: environments are not loaded then.
        extra: what installs them.

    Raises:
        UsageError: what they need is not installed.
    """
    try:
        devices = import_module("perdure.nnx.devices")
        if n_devices is not None:
            devices.provide(n_devices)
            import_module("perdure.nnx.envs.gymnax")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perdure"):
            raise
        missing = f"the trainers need {error.name}, which is not installed: pip install 'perdure[{extra}]'"
        raise UsageError(missing) from error


def require_torch() -> None:
    """Loads the PyTorch trainers.

    Raises:
        UsageError: what they need is not installed.
    """
    try:
        import_module("perdure.torch")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perdure"):
            raise
        missing = (
            f"the trainer torch-ppo needs {error.name}, which is not installed: pip install 'perdure[gymnasium,torch]'"
        )
        raise UsageError(missing) from error
