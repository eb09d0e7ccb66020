"""Starting and resuming runs from plain values: what `perdure train torch-ppo` and `perdure resume` do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from perdure import Every, Keep, Run, UsageError
from perdure.torch.config import PPOConfig, from_mapping, to_mapping
from perdure.torch.environments import check_environments, factory_of, vector_of
from perdure.torch.evaluation import check_evaluation
from perdure.torch.ppo import FREE, HORIZON, LogFn, TrainResult, seed_process, train

NAME = "torch-ppo"
"""The trainer's name in launch records."""

CHECKPOINT_EVERY = 100_000
"""Env-steps between checkpoints unless somebody says otherwise."""

COMPONENT = "networks"
"""The component that is the policy."""

Schedules = Literal["keep", "restretch"]
"""What another total does to a learning rate that falls: the old line is finished and 0 stays, or what is left of it is
stretched over the steps that are left."""


def launch_ppo(
    env_id: str,
    config: PPOConfig,
    run_directory: str | Path,
    *,
    checkpoint_every_steps: int = CHECKPOINT_EVERY,
    checkpoint_every: Every | None = None,
    mode: Literal["auto", "new", "resume"] = "auto",
    keep: Keep | None = Keep(last=2),  # noqa: B008 - a frozen value
    log_fn: LogFn | None = None,
    accept: Sequence[str] = (),
    reason: str | None = None,
    schedules: Schedules | None = None,
    policy_every_steps: int | None = None,
) -> TrainResult:
    """Train in one of Gymnasium's environments, in a run that `perdure resume` can start again.

    Args:
        env_id: Gymnasium's name of the environment.
        config: The options.
        run_directory: The run's directory.
        checkpoint_every_steps: Env-steps between checkpoints, as they are recorded.
        checkpoint_every: The cadence, if it is more than that.
        mode: `new` and `resume` insist on a fresh or an existing run, `auto` takes either.
        keep: Which checkpoints stay; all of them if None.
        log_fn: As in `train`.
        accept: Differences from the run that are accepted, `KEY=OLD:NEW` each.
        reason: Why, for the lineage.
        schedules: What another total than the run's does to the learning rate; it is refused if None.
        policy_every_steps: Env-steps between policies in the run's directory, of which all stay; None: none.

    Raises:
        UsageError: If there is no such environment, or an option is refused.
        perdure.PerdureError: What opening or restoring the run raises.
    """
    check_schedules(schedules, config)
    settings = {"checkpoint_every_steps": checkpoint_every_steps, **to_mapping(config)}
    seed_process(config.seed, run_directory)
    opened = Run(
        run_directory,
        config=settings,
        contract={"env": {"env_id": env_id}},
        horizon=HORIZON,
        schedules=schedules if config.anneal_lr else "none",
        free=(*FREE, "checkpoint_every_steps"),
        accept=accept,
        reason=reason,
        every=checkpoint_every or Every(env_steps=checkpoint_every_steps),
        launch={
            "kind": "trainer",
            "name": NAME,
            "config": {"env_id": env_id, **settings},
            "keep_last": (keep.last or 1) if keep else 0,
            "policy_every_steps": policy_every_steps,
        },
        mode=mode,
        keep=keep,
        policy=[COMPONENT],
        policy_every=None if policy_every_steps is None else Every(env_steps=policy_every_steps),
    )
    with opened as run:
        return train(env_id, config, run=run, log_fn=log_fn)


def resume_ppo(
    record: Mapping[str, Any],
    run_directory: str | Path,
    *,
    checkpoint_every: Every | None = None,
    keep: Keep | Literal["recorded"] | None = "recorded",
    log_fn: LogFn | None = None,
    accept: Sequence[str] = (),
    reason: str | None = None,
    schedules: Schedules | None = None,
) -> TrainResult:
    """Go on with a run that `launch_ppo` started.

    Args:
        record: The run's launch record.
        run_directory: The run's directory.
        checkpoint_every: As in `launch_ppo`.
        keep: As in `launch_ppo`; by default as the record says.
        log_fn: As in `train`.
        accept: As in `launch_ppo`.
        reason: As in `launch_ppo`.
        schedules: As in `launch_ppo`.

    Raises:
        UsageError: If the record is of another trainer, or of another version's.
        perdure.PerdureError: What opening or restoring the run raises.
    """
    env_id, every_steps, config = options_of(record)
    last = record.get("keep_last", 2)
    return launch_ppo(
        env_id,
        config,
        run_directory,
        checkpoint_every_steps=every_steps,
        checkpoint_every=checkpoint_every,
        mode="resume",
        keep=(Keep(last=last) if last else None) if keep == "recorded" else keep,
        log_fn=log_fn,
        accept=accept,
        reason=reason,
        schedules=schedules,
        policy_every_steps=record.get("policy_every_steps"),
    )


def check_schedules(schedules: Schedules | None, config: PPOConfig) -> None:
    """Refuses to stretch what does not depend on the total.

    Raises:
        UsageError: the learning rate is constant.
    """
    if schedules is not None and not config.anneal_lr:
        raise UsageError(
            f"schedules={schedules}: the learning rate is constant (anneal_lr=False), so that any total is taken; "
            "leave schedules out."
        )


def options_of(record: Mapping[str, Any]) -> tuple[str, int, PPOConfig]:
    """The environment's id, the cadence and the options of a launch record.

    Raises:
        UsageError: If it is of another trainer, or of another version's.
    """
    if (record.get("kind"), record.get("name")) != ("trainer", NAME):
        raise UsageError(
            f"not a launch record of the trainer {NAME}: its kind is {record.get('kind')!r}, "
            f"its name {record.get('name')!r}."
        )
    settings = dict(record["config"])
    return settings.pop("env_id"), settings.pop("checkpoint_every_steps"), from_mapping(settings)


def check_buildable(env_id: str, config: PPOConfig) -> None:
    """Builds the environments once, so that a run's directory is not touched in vain.

    Raises:
        UsageError: If there is no such environment, or the trainer cannot train in it.
    """
    factory = factory_of(env_id, config)
    envs = vector_of(factory, config)
    try:
        check_environments(envs, config)
        check_evaluation(envs, factory, config)
    finally:
        envs.close()
