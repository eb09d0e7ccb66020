"""The trainers that `perdure resume` can start again, by the names in launch records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perdure.cli.training import Trained, cadence, require_torch, require_trainer
from perdure.errors import UsageError
from perdure.runs.retention import Keep

if TYPE_CHECKING:
    from perdure.cli.progress import Progress
    from perdure.nnx import NetworkConfig


@dataclass(frozen=True)
class Resumption:
    """How to go on."""

    launch: Mapping[str, Any]
    """The launch record, with changed options."""
    directory: Path
    """The run's."""
    keep: Keep | None
    """Which checkpoints stay."""
    accept: Sequence[str]
    """Differences that are accepted."""
    reason: str | None
    """Why."""
    schedules: Literal["keep", "restretch"] | None = None
    """What another total does to schedules."""


@dataclass(frozen=True)
class Trainer:
    """What `perdure resume` needs to know of a trainer."""

    total: tuple[str, ...]
    """Where the total of env-steps stands among its options."""
    check: Callable[[Path, Mapping[str, Any], Mapping[str, Any]], None]
    """Given the run's directory, recorded and changed options: raises a UsageError if they are not this perdure's."""
    resume: Callable[[Resumption, "Progress"], Trained]
    """Goes on to the horizon."""
    policy: tuple[str, ...] = ("networks",)
    """The components that are its policy."""
    has_schedules: bool = False
    """Whether something may depend on the total."""


def _check_nnx(directory: Path, recorded: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    from perdure.cli.train import check_buildable

    require_trainer()
    try:
        _parts_of(recorded)
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{directory}: its launch record is not this perdure's: {error}") from error
    try:
        env, networks = _parts_of(changed)
    except ValueError as error:
        raise UsageError(str(error)) from error
    n_devices = changed["ppo"].get("n_devices", 1)
    require_trainer(n_devices)
    check_buildable(env, networks, n_devices)


def _parts_of(config: Mapping[str, Any]) -> tuple[str, "NetworkConfig"]:
    """The environment's name and the networks' options; all options are checked."""
    from perdure.nnx.config import NetworkConfig, TrainConfig, from_mapping

    parts = dict(config)
    env, networks = parts.pop("env_id"), from_mapping(NetworkConfig, parts.pop("networks"))
    from_mapping(TrainConfig, parts)
    return env, networks


def _resume_nnx(resumption: Resumption, progress: "Progress") -> Trained:
    from perdure.nnx import resume_ppo

    return resume_ppo(**_terms(resumption), log_fn=progress)


def _check_torch(directory: Path, recorded: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    require_torch()
    from perdure.torch.launch import NAME, check_buildable, options_of

    try:
        options_of({"kind": "trainer", "name": NAME, "config": recorded})
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{directory}: its launch record is not this perdure's: {error}") from error
    env, _, config = options_of({"kind": "trainer", "name": NAME, "config": changed})
    check_buildable(env, config)


def _resume_torch(resumption: Resumption, progress: "Progress") -> Trained:
    from perdure.torch import resume_ppo

    return resume_ppo(**_terms(resumption), log_fn=progress, schedules=resumption.schedules)


def _terms(resumption: Resumption) -> dict[str, Any]:
    """What every trainer is told."""
    return {
        "record": resumption.launch,
        "run_directory": resumption.directory,
        "checkpoint_every": cadence(resumption.launch["config"]["checkpoint_every_steps"]),
        "keep": resumption.keep,
        "accept": resumption.accept,
        "reason": resumption.reason,
    }


def trainer_named(name: Any) -> Trainer | None:
    """The trainer, if this perdure has it."""
    match name:
        case "ppo":
            return Trainer(("ppo", "total_steps"), _check_nnx, _resume_nnx)
        case "torch-ppo":
            return Trainer(("total_timesteps",), _check_torch, _resume_torch, has_schedules=True)
    return None
