"""One iteration of PPO: a rollout, several epochs of minibatches, one compiled function."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec

from perdure.nnx.checkpointing import bind_env_states
from perdure.nnx.config import PPOConfig
from perdure.nnx.devices import Devices, mesh_of, place, specs
from perdure.nnx.environment import Environment
from perdure.nnx.host import HostEnvironments
from perdure.nnx.host_rollout import unroll_on_host
from perdure.nnx.loss import LossMetrics, ppo_loss
from perdure.nnx.metrics import LoggingLevel, Metrics, statistics
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.rollout import Transition, ended_at, unroll_env
from perdure.nnx.state import Arrays, Structure, TrainingState, join_state, split_state

FINITE = "is_finite"
"""Name of the metric that says whether the losses of an iteration, and the parameters after it, are finite numbers."""


def ppo_step(
    env: Environment | HostEnvironments, training_state: TrainingState, config: PPOConfig
) -> tuple[TrainingState, Metrics]:
    """One iteration of PPO (arXiv:1707.06347).

    Args:
        env: The environment.
        training_state: The state to start from; its networks and optimizer are changed in place.
        config: The hyper-parameters; those of the optimizer are the optimizer's own.

    Returns:
        The state after it, and metrics as scalar arrays, which may still be under computation; `is_finite`
        is always among them.
    """
    training_state = bind_env_states(env, training_state)
    structure, arrays = split_state(training_state)
    arrays, metrics = iterate(env, structure, config, place(arrays, config.n_devices))
    steps_taken = training_state.steps_taken + config.steps_per_iteration
    return join_state(training_state, arrays, steps_taken), metrics


def iterate(
    env: Environment | HostEnvironments, structure: Structure, config: PPOConfig, arrays: Arrays
) -> tuple[Arrays, Metrics]:
    """One iteration on arrays, which are donated: the caller must not use them again.

    Compiled once per environment, structure, configuration and shapes; the horizon is no part of it.
    """
    timeless = dataclasses.replace(config, total_steps=config.steps_per_iteration)
    if isinstance(env, HostEnvironments):
        return _iterate_on_host(env, structure, timeless, arrays)
    return _iterate(env, structure, timeless, arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _iterate(env: Environment, structure: Structure, config: PPOConfig, arrays: Arrays) -> tuple[Arrays, Metrics]:
    iteration = functools.partial(_iteration, env, structure, config)
    if config.n_devices == 1:
        return iteration(arrays)
    mesh, where = mesh_of(config.n_devices), specs()
    split = jax.shard_map(iteration, mesh=mesh, in_specs=(where,), out_specs=(where, PartitionSpec()), check_vma=False)
    return split(arrays)


def _iteration(env: Environment, structure: Structure, config: PPOConfig, arrays: Arrays) -> tuple[Arrays, Metrics]:
    """An iteration, as each device runs it with its own share of the environments."""
    devices = Devices(config.n_devices)
    rng_key, reset_key, shuffle_key = jax.random.split(arrays.rng_key, 3)
    networks = nnx.merge(structure.networks, arrays.params, arrays.rest)
    optimizer = nnx.merge(structure.optimizer, arrays.optimizer)
    common = devices.own_streams(networks)
    network_states, env_states, rollout = unroll_env(
        env,
        arrays.env_states,
        networks,
        arrays.network_states,
        config.rollout_length,
        devices.own_key(reset_key),
        config.logging_level,
    )
    metrics = _learn(networks, optimizer, arrays.network_states, rollout, shuffle_key, config, devices)
    devices.common_streams(networks, common)
    _, params, rest = nnx.split(networks, nnx.Param, ...)
    after = Arrays(params, rest, nnx.state(optimizer), network_states, env_states, rng_key)
    return after, metrics


def _iterate_on_host(
    env: HostEnvironments, structure: Structure, config: PPOConfig, arrays: Arrays
) -> tuple[Arrays, Metrics]:
    """The same where the environments step on the host; one compiled function learns from what they gave."""
    variables = (arrays.params, arrays.rest)
    collected = unroll_on_host(
        env,
        arrays.env_states,
        structure.networks,
        variables,
        arrays.network_states,
        config.rollout_length,
        config.logging_level,
    )
    before = arrays._replace(rest=collected.rest, env_states=())
    last = (collected.network_states, collected.env_states.obs)
    after, metrics = _learn_from_host(structure, config, before, last, collected.rollout)
    return after._replace(env_states=collected.env_states), metrics


@functools.partial(jax.jit, static_argnums=(0, 1))
def _learn_from_host(
    structure: Structure, config: PPOConfig, arrays: Arrays, last: tuple[Any, Any], rollout: Transition
) -> tuple[Arrays, Metrics]:
    """Learn from a rollout, given the networks as they are after it, and the carries and observations at its end."""
    network_states, last_obs = last
    rng_key, _, shuffle_key = jax.random.split(arrays.rng_key, 3)
    networks = nnx.merge(structure.networks, arrays.params, arrays.rest)
    optimizer = nnx.merge(structure.optimizer, arrays.optimizer)
    rollout = ended_at(rollout, last_obs)
    metrics = _learn(networks, optimizer, arrays.network_states, rollout, shuffle_key, config, Devices())
    _, params, rest = nnx.split(networks, nnx.Param, ...)
    return Arrays(params, rest, nnx.state(optimizer), network_states, (), rng_key), metrics


def _learn(
    networks: StatefulModule,
    optimizer: nnx.Optimizer[Any],
    network_states: Any,
    rollout: Transition,
    shuffle_key: jax.Array,
    config: PPOConfig,
    devices: Devices,
) -> Metrics:
    """Everything that follows a rollout, in place: the update, what is measured, and the networks' statistics."""
    experience = dataclasses.replace(rollout, measured={})
    losses = update(networks, optimizer, network_states, experience, devices.own_key(shuffle_key), config, devices)
    metrics = measure(devices.stack(losses), devices.stack(_told(rollout, config)), networks, config)
    networks.update_statistics(devices.join(rollout.rollout_extras))
    return metrics


def update(
    networks: StatefulModule,
    optimizer: nnx.Optimizer[Any],
    network_states: Any,
    rollout: Transition,
    shuffle_key: jax.Array,
    config: PPOConfig,
    devices: Devices = Devices(),  # noqa: B008 - a frozen value
) -> LossMetrics:
    """All epochs and minibatches of one iteration, in place; traceable.

    Args:
        networks: To train.
        optimizer: To train them with.
        network_states: Carries at the rollout's start, leading axis `n_envs`.
        rollout: Leading axes `[rollout_length, n_envs]`.
        shuffle_key: Deals the environments to minibatches, anew each epoch.
        config: The hyper-parameters.
        devices: Over which gradients are averaged.

    Returns:
        What `ppo_loss` measured, and the gradient's norm, with a leading axis of updates.
    """
    network_graph, params, rest = nnx.split(networks, nnx.Param, ...)
    optimizer_graph, optimizer_state = nnx.split(optimizer)

    def one(carry: tuple[Any, Any, Any], rows: jax.Array) -> tuple[tuple[Any, Any, Any], LossMetrics]:
        params, rest, optimizer_state = carry
        minibatch = jax.tree.map(lambda leaf: leaf[:, rows], rollout)
        carries = jax.tree.map(lambda leaf: leaf[rows], network_states)

        def loss(params: nnx.State) -> tuple[jax.Array, tuple[LossMetrics, nnx.State]]:
            trained = nnx.merge(network_graph, params, rest, copy=True)
            value, metrics = ppo_loss(trained, carries, minibatch, config, devices)
            metrics[FINITE] = jnp.isfinite(value)
            return value, (metrics, nnx.state(trained, nnx.Not(nnx.Param)))

        gradients, (metrics, rest) = jax.grad(loss, has_aux=True)(params)
        gradients = devices.mean(gradients)
        trained = nnx.merge(network_graph, params, rest)
        optimizing = nnx.merge(optimizer_graph, optimizer_state)
        optimizing.update(trained, gradients)
        if LoggingLevel.GRAD_NORM in config.logging_level:
            metrics["grad_norm"] = optax.tree.norm(gradients)
        _, params, rest = nnx.split(trained, nnx.Param, ...)
        return (params, rest, nnx.state(optimizing)), metrics

    rows = minibatch_rows(shuffle_key, config)
    (params, rest, optimizer_state), metrics = jax.lax.scan(one, (params, rest, optimizer_state), rows)
    nnx.update(networks, params, rest)
    nnx.update(optimizer, optimizer_state)
    return metrics


def minibatch_rows(shuffle_key: jax.Array, config: PPOConfig) -> jax.Array:
    """Which of a device's environments each update sees: int32 `[n_epochs * n_minibatches, n_envs / n_minibatches]`.

    Each epoch deals every environment once. With several devices, `n_envs` are those of one.
    """
    keys = jax.random.split(shuffle_key, config.n_epochs)
    permutations = jax.vmap(lambda key: jax.random.permutation(key, config.n_envs // config.n_devices))(keys)
    return permutations.reshape((config.n_epochs * config.n_minibatches, -1))


def _told(rollout: Transition, config: PPOConfig) -> dict[str, Any]:
    """What `config.logging_level` asks for of a rollout."""
    level = config.logging_level
    found: dict[str, Any] = {}
    if LoggingLevel.ACTOR_EXTRA in level:
        found["loglikelihood"] = rollout.loglikelihoods
    if LoggingLevel.TRAIN_ROLLOUT_STATS in level:
        found["rollout_batch/reward"] = rollout.rewards
        found["rollout_batch/action"] = rollout.measured["actions"]
        found["rollout_batch/done_rate"] = rollout.done
        found["rollout_batch/truncation_rate"] = rollout.measured["truncated"]
    if LoggingLevel.ROLLOUT_OBS in level:
        found["rollout_batch/obs"] = rollout.obs
    if LoggingLevel.TRAINING_ENV_METRICS in level:
        found |= {"env": rollout.measured["env"], "net": rollout.measured["net"]}
    return found


def measure(losses: LossMetrics, told: dict[str, Any], networks: StatefulModule, config: PPOConfig) -> Metrics:
    """Scalars for what `config.logging_level` asks for; and in any case `is_finite`."""
    found: dict[str, Any] = {**losses, **told}
    params = jax.tree.leaves(nnx.state(networks, nnx.Param))
    finite = [jnp.isfinite(leaf).all() for leaf in params]
    metrics: Metrics = {FINITE: functools.reduce(jnp.logical_and, finite, jnp.all(found.pop(FINITE)))}
    if LoggingLevel.WEIGHTS in config.logging_level:
        found["weights"] = jnp.concatenate([leaf.ravel() for leaf in params])
    for name, values in found.items():
        metrics |= statistics(name, values, config.logging_percentiles)
    return metrics
