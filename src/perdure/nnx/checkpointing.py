"""Checkpoints without a run: a callback that makes a directory each, and the way back.

The one-line way is `train_ppo(..., run="runs/x")`, which also resumes by itself, keeps a history and cleans up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

import jax
from flax import nnx

from perdure import Checkpoint, ContractError, UsageError, save
from perdure.nnx.config import TrainConfig, from_mapping, to_mapping
from perdure.nnx.environment import Environment
from perdure.nnx.host import HostEnvironments, HostStates
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.state import TrainingState, fresh_env_states, optimizer_of
from perdure.nnx.trees import strong


class CheckpointCallback(Protocol):
    """What `train_ppo` takes as `checkpoint_fn`: any callable of these two keywords."""

    def __call__(self, *, training_state: TrainingState, step: int) -> None:
        """Save the state after `step` env-steps. The state's objects go on changing as soon as this returns."""
        ...


def make_checkpoint_fn(
    directory: str | Path, config: TrainConfig | Mapping[str, Any] | None = None
) -> CheckpointCallback:
    """A callback that saves each state it is given to `<directory>/step_<step, ten digits>/`.

    A checkpoint is durable and whole when the callback returns, or not there at all. Saving the very same state again
    does nothing.

    Args:
        directory: Where; made absolute at once, so that a later change of the working directory does no harm.
        config: Stored in each checkpoint: a `TrainConfig`, or a mapping of plain values.

    Raises:
        UsageError: If the configuration is neither.
    """
    root = Path(directory).expanduser().absolute()
    stored = _stored_config(config)

    def checkpoint_fn(training_state: TrainingState, step: int) -> None:
        state = training_state
        save(
            root / f"step_{step:010d}",
            exist_ok=True,
            networks=state.networks,
            optimizer=state.optimizer,
            network_states=state.network_states,
            env_states=state.env_states,
            rng_key=state.rng_key,
            steps_taken=state.steps_taken,
            eval_history=[dict(entry) for entry in state.eval_history],
            contract={section: dict(keys) for section, keys in (state.contract or {}).items()},
            step=step,
            config=stored,
        )

    return checkpoint_fn


def load_checkpoint(
    path: str | Path,
    networks: StatefulModule,
    optimizer: nnx.Optimizer[Any],
    *,
    env: Environment | HostEnvironments | None = None,
    accept: Sequence[str] = (),
) -> dict[str, Any]:
    """Restore what a callback of `make_checkpoint_fn` saved.

    Networks and optimizer are restored in place: both, or neither. Their structure must be the saved one; their values
    do not matter. Nor do the optimizer's hyper-parameters where a `TrainConfig` was stored: it says them, and the
    optimizer takes them over. That the training that goes on is the one that was saved (its configuration, its
    environment) is checked by `train_ppo(initial_state=...)`; for inference, anything goes.

    Args:
        path: The directory of one checkpoint, `<directory>/step_<step>`.
        networks: Of the saved structure.
        optimizer: Likewise.
        env: If given, `env_states` come back as its states at once. Otherwise `train_ppo` and `ppo_step` do that.
        accept: Differences in functions and hyper-parameters that are accepted, as a refusal says them.

    Returns:
        `training_state`; `step`, an int; and `config`, what was given to `make_checkpoint_fn`, or None.

    Raises:
        NoCheckpointError: If there is no directory at `path`.
        DamagedError: If a file is not what was written.
        ContractError: If a structure differs; every leaf is named, and nothing was changed.
    """
    checkpoint = Checkpoint(path)
    missing = sorted({"networks", "optimizer", "env_states", "steps_taken", "config"} - set(checkpoint.components))
    if missing:
        raise UsageError(f"{path}: no component {', '.join(missing)}: make_checkpoint_fn did not write it.")
    plain = checkpoint.read()
    config = _restored_config(plain["config"])
    n_envs = _leading_axis(_arrays_of(plain["env_states"]))
    # A copy draws the fresh carries, so that no random stream of the networks moves.
    carries = strong(nnx.clone(networks).initialize_state(n_envs))
    values = _restore(
        checkpoint,
        {"networks": networks, "network_states": carries, "rng_key": jax.random.key(0)},
        optimizer,
        config,
        accept,
    )
    state = TrainingState(
        networks=networks,
        network_states=values["network_states"],
        env_states=UnboundEnvStates(checkpoint, n_envs),
        optimizer=optimizer,
        rng_key=values["rng_key"],
        steps_taken=plain["steps_taken"],
        eval_history=tuple(plain["eval_history"]),
        contract=plain["contract"] or None,
    )
    return {
        "training_state": state if env is None else bind_env_states(env, state),
        "step": plain["step"],
        "config": config,
    }


def _restore(
    checkpoint: Checkpoint, targets: dict[str, Any], optimizer: nnx.Optimizer[Any], config: Any, accept: Sequence[str]
) -> dict[str, Any]:
    """All or nothing; by the optimizer as it is, or else by the one that the stored configuration describes."""
    try:
        return checkpoint.load(accept=accept, optimizer=optimizer, **targets)
    except ContractError as refusal:
        if not isinstance(config, TrainConfig):
            raise
        rebuilt = nnx.Optimizer(targets["networks"], optimizer_of(config.ppo), wrt=optimizer.wrt)
        try:
            values = checkpoint.load(accept=accept, optimizer=rebuilt, **targets)
        except ContractError as other:
            raise min(other, refusal, key=lambda error: len(error.findings)) from None
        optimizer.tx, optimizer.opt_state, optimizer.step = rebuilt.tx, rebuilt.opt_state, rebuilt.step
        return values


class UnboundEnvStates:
    """Environment states of a checkpoint before an environment has said what classes they are of."""

    def __init__(self, checkpoint: Checkpoint, n_envs: int) -> None:
        """Keep the checkpoint until then."""
        self.checkpoint = checkpoint
        self.n_envs = n_envs

    def __getattr__(self, name: str) -> Any:
        """Nothing can be read yet."""
        raise AttributeError(
            f"env_states.{name}: a checkpoint holds no classes, so that env_states take theirs from the environment. "
            "Give it to load_checkpoint(..., env=env), or hand the state to train_ppo or ppo_step as it is."
        )

    def __repr__(self) -> str:
        """Where they come from."""
        return f"UnboundEnvStates({self.checkpoint.path}, n_envs={self.n_envs})"


def bind_env_states(env: Environment | HostEnvironments, state: TrainingState) -> TrainingState:
    """The state with `env_states` of the environment's classes; the same state if they have them already.

    Raises:
        ContractError: If the environment's states have another structure, or other shapes or dtypes.
    """
    unbound = state.env_states
    if not isinstance(unbound, UnboundEnvStates):
        return state
    fresh = fresh_env_states(env, jax.random.key(0), unbound.n_envs)
    return replace(state, env_states=unbound.checkpoint.load(env_states=fresh)["env_states"])


def _arrays_of(env_states: Any) -> Any:
    """What has the leading axis: of saved `HostStates`, the observations."""
    is_of_host = isinstance(env_states, dict) and env_states.keys() == {field.name for field in fields(HostStates)}
    return env_states["obs"] if is_of_host else env_states


def _leading_axis(tree: Any) -> int:
    return int(jax.tree.leaves(tree)[0].shape[0])


def _stored_config(config: TrainConfig | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if config is None:
        return None
    if isinstance(config, TrainConfig):
        return {"kind": _TRAIN_CONFIG, "fields": to_mapping(config)}
    if isinstance(config, Mapping):
        return {"kind": "mapping", "fields": dict(config)}
    kind = type(config).__name__
    raise UsageError(f"make_checkpoint_fn(config={kind}(...)): a TrainConfig or a mapping of plain values is stored.")


def _restored_config(stored: Any) -> Any:
    if stored is None:
        return None
    saved = stored["fields"]
    return from_mapping(TrainConfig, saved) if stored["kind"] == _TRAIN_CONFIG else saved


_TRAIN_CONFIG = "TrainConfig"
