"""Starting and resuming PPO runs from plain values: what `perdure train ppo` and `perdure resume` do."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flax import nnx

from perdure import Every, Keep, Run
from perdure.nnx.config import NetworkConfig, TrainConfig, from_mapping, to_mapping
from perdure.nnx.devices import provide
from perdure.nnx.environment import Environment, contract_of
from perdure.nnx.networks.containers import Sequential
from perdure.nnx.networks.factories import make_mlp_actor_critic
from perdure.nnx.networks.routing import Flattener
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.training import FREE, HORIZON, LogFn, TrainResult, seed_process, train_ppo
from perdure.sinks.names import Name, sink_named

Mode = Literal["auto", "new", "resume"]


def launch_ppo(
    env_id: str,
    config: TrainConfig,
    run_directory: str | Path,
    *,
    networks: NetworkConfig | None = None,
    mode: Mode = "auto",
    checkpoint_every: Every | None = None,
    keep: Keep | None = Keep(last=2),  # noqa: B008 - a frozen value
    background: bool = True,
    log_fn: LogFn | None = None,
    accept: Sequence[str] = (),
    reason: str | None = None,
    log: Sequence[Name] = (),
) -> TrainResult:
    """Train an actor-critic of dense layers on a gymnax environment, in a run.

    Args:
        env_id: gymnax's name of the environment.
        config: The training.
        run_directory: The run's directory.
        networks: The networks; their defaults if None.
        mode: `new` and `resume` insist on a fresh or an existing run, `auto` takes either.
        checkpoint_every: The cadence of checkpoints; every `config.checkpoint_every_steps` if None.
        keep: Which checkpoints stay; all of them if None.
        background: Whether a thread writes checkpoints while the training goes on.
        log_fn: As in `train_ppo`.
        accept: Differences from the run that are accepted, `KEY=OLD:NEW` each.
        reason: Why, for the lineage.
        log: Where metric rows go besides `metrics.jsonl`; `perdure resume` does the same.

    Raises:
        ValueError: If there is no such environment, or an option is refused.
        perdure.PerdureError: What opening or restoring the run raises.
    """
    provide(config.ppo.n_devices)
    network_config = networks or NetworkConfig()
    env, policy = build(env_id, network_config, seed=config.seed)
    settings = {"networks": to_mapping(network_config), **to_mapping(config)}
    launched = {"env_id": env_id, **settings}
    seed_process(config.seed, run_directory)
    opened = Run(
        run_directory,
        config=settings,
        contract=contract_of(env),
        horizon=HORIZON,
        schedules="none",
        free=FREE,
        accept=accept,
        reason=reason,
        every=checkpoint_every or Every(env_steps=config.checkpoint_every_steps),
        launch={
            "kind": "trainer",
            "name": "ppo",
            "config": launched,
            "keep_last": (keep.last or 1) if keep else 0,
            "log": list(log),
        },
        mode=mode,
        keep=keep,
        background=background,
        sinks=[sink_named(name) for name in log],
    )
    with opened as run:
        return train_ppo(env, policy, config, log_fn=log_fn, run=run)


def resume_ppo(
    record: Mapping[str, Any],
    run_directory: str | Path,
    *,
    checkpoint_every: Every | None = None,
    keep: Keep | Literal["recorded"] | None = "recorded",
    background: bool = True,
    log_fn: LogFn | None = None,
    accept: Sequence[str] = (),
    reason: str | None = None,
) -> TrainResult:
    """Go on with a run that `launch_ppo` started.

    Args:
        record: The run's launch record.
        run_directory: The run's directory.
        checkpoint_every: As in `launch_ppo`; the cadence is no part of the record.
        keep: As in `launch_ppo`; by default as the record says.
        background: As in `launch_ppo`.
        log_fn: As in `train_ppo`.
        accept: As in `launch_ppo`.
        reason: As in `launch_ppo`.

    Raises:
        ValueError: If the record is of another trainer, or of another version's.
        perdure.PerdureError: What opening or restoring the run raises.
    """
    if (record.get("kind"), record.get("name")) != ("trainer", "ppo"):
        raise ValueError(
            f"not a launch record of the trainer ppo: its kind is {record.get('kind')!r}, "
            f"its name {record.get('name')!r}."
        )
    settings = dict(record["config"])
    return launch_ppo(
        settings.pop("env_id"),
        networks=from_mapping(NetworkConfig, settings.pop("networks")),
        config=from_mapping(TrainConfig, settings),
        run_directory=run_directory,
        mode="resume",
        checkpoint_every=checkpoint_every,
        keep=_recorded_keep(record) if keep == "recorded" else keep,
        background=background,
        log_fn=log_fn,
        accept=accept,
        reason=reason,
        log=record.get("log", ()),
    )


def _recorded_keep(record: Mapping[str, Any]) -> Keep | None:
    last = record.get("keep_last", 2)
    return Keep(last=last) if last else None


def build(env_id: str, config: NetworkConfig, *, seed: int) -> tuple[Environment, StatefulModule]:
    """The environment, and networks of its sizes with parameters drawn from `seed`."""
    from perdure.nnx.envs.gymnax import GymnaxEnvironment

    env = GymnaxEnvironment(env_id)
    networks = make_mlp_actor_critic(
        env.obs_size,
        env.action.size,
        rngs=nnx.Rngs(seed),
        action_kind=env.action.kind,
        **dataclasses.asdict(config),
    )
    return env, networks if len(env.obs_shape) == 1 else Sequential([Flattener(), networks])
