"""Collecting experience on the host: the network is compiled, the environments step between its calls."""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from perdure import UsageError
from perdure.nnx.host import HostEnvironments, HostStates, HostStep
from perdure.nnx.metrics import LoggingLevel
from perdure.nnx.networks.types import PPONetworkOutput
from perdure.nnx.rollout import Transition, check_value_heads, reset_carries, values_of
from perdure.nnx.trees import strong

Graph = nnx.GraphDef[Any]


class Collected(NamedTuple):
    """What a rollout on the host leaves."""

    rest: nnx.State
    """All variables of the networks but the trainable ones, whose random streams have advanced."""
    network_states: Any
    """Carries for the next step."""
    env_states: HostStates
    """Where the environments stand."""
    rollout: Transition
    """NumPy arrays `[T, B]`; `last_obs` is still missing."""


class Decision(NamedTuple):
    """What the network says in one step."""

    actions: Any
    """For the environments."""
    loglikelihoods: Any
    """As in `Transition`."""
    rollout_extras: Any
    """As in `Transition`."""
    metrics: Any
    """The network's own."""


def unroll_on_host(
    env: HostEnvironments,
    env_states: HostStates,
    networks: Graph,
    variables: tuple[nnx.State, nnx.State],
    network_states: Any,
    rollout_length: int,
    logging_level: LoggingLevel,
) -> Collected:
    """Step the environments `rollout_length` times; they start new episodes by themselves.

    What is computed is what `unroll_env` computes, with one wait for the device a step.

    Args:
        env: The environments.
        env_states: Where they stand.
        networks: Structure of the networks.
        variables: Their trainable variables, and all others.
        network_states: Their carries, leading axis `B`.
        rollout_length: Number of steps `T`.
        logging_level: What is measured beside.

    Raises:
        UsageError: If the states are those of other environments.
    """
    if env_states.envs is not env.envs:
        raise UsageError(
            f"env_states: they are of another {type(env).__name__} than the one given. Hand in the one that the state "
            "was made with; a checkpoint can be restored into a new one."
        )
    params, rest = variables
    obs, transitions = env_states.obs, []
    for _ in range(rollout_length):
        rest, carries, on_device = act(networks, params, rest, network_states, obs)
        decision = jax.device_get(on_device)
        after = env.step(decision.actions)
        done: Any = after.done  # a NumPy array until the rollout is learned from
        transitions.append(
            Transition(
                obs=obs,
                loglikelihoods=decision.loglikelihoods,
                rewards=after.reward,
                done=done,
                bootstrap_values=_values_where_truncated(networks, params, rest, carries, after),
                rollout_extras=decision.rollout_extras,
                measured=_measured(decision, after, logging_level),
            )
        )
        network_states = _next_carries(networks, params, rest, carries, after.done) if after.done.any() else carries
        obs = after.obs
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *transitions)
    return Collected(rest, network_states, replace(env_states, obs=obs), stacked)


@functools.partial(jax.jit, static_argnums=0)
def act(
    networks: Graph, params: nnx.State, rest: nnx.State, network_states: Any, obs: Any
) -> tuple[nnx.State, Any, Decision]:
    """One call of the networks on the batch: their variables afterwards, their carries, and what they decide."""
    acting = nnx.merge(networks, params, rest, copy=True)
    result = acting(network_states, obs)
    output: PPONetworkOutput = result.output
    check_value_heads(output.value_estimates, 0.0)
    decision = Decision(output.actions, output.loglikelihoods, result.rollout_extras, result.metrics)
    return nnx.state(acting, nnx.Not(nnx.Param)), strong(result.next_state), decision


def _values_where_truncated(
    networks: Graph, params: nnx.State, rest: nnx.State, network_states: Any, after: HostStep
) -> np.ndarray:
    if not after.truncated.any():
        return np.zeros_like(after.reward)
    values = jax.device_get(_values(networks, params, rest, network_states, after.final_obs))
    return np.where(after.truncated, values, np.zeros_like(after.reward))


@functools.partial(jax.jit, static_argnums=0)
def _values(networks: Graph, params: nnx.State, rest: nnx.State, network_states: Any, obs: Any) -> Any:
    return values_of(nnx.merge(networks, params, rest, copy=True), network_states, obs)


@functools.partial(jax.jit, static_argnums=0)
def _next_carries(networks: Graph, params: nnx.State, rest: nnx.State, network_states: Any, done: Any) -> Any:
    return reset_carries(nnx.merge(networks, params, rest, copy=True), done, network_states)


def _measured(decision: Decision, after: HostStep, logging_level: LoggingLevel) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    if LoggingLevel.TRAIN_ROLLOUT_STATS in logging_level:
        measured |= {"actions": decision.actions, "truncated": after.truncated}
    if LoggingLevel.TRAINING_ENV_METRICS in logging_level:
        measured |= {"env": {}, "net": decision.metrics}
    return measured
