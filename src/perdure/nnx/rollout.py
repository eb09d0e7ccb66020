"""Collecting experience: a batch of environments and a network stepped together."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.environment import Environment, done_of, truncation_of
from perdure.nnx.metrics import LoggingLevel
from perdure.nnx.networks.replay import reset_carries
from perdure.nnx.networks.types import PPONetworkOutput, StatefulModule, StatefulModuleOutput
from perdure.nnx.trees import same_structure, select, strong


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transition:
    """One step of a batch of environments; after a rollout, leaves have leading axes `[T, B]`."""

    obs: Any
    """What the network saw."""
    loglikelihoods: Any
    """Log-likelihood of what it did, as in `PPONetworkOutput`."""
    rewards: Any
    """What it got."""
    done: jax.Array
    """Whether that ended the episode, for either reason; bool."""
    bootstrap_values: Any
    """Estimated return after the step, of the structure of `rewards`, where the data ends but the task does not: at
    a truncation, by the network that acted and from the final observation. Elsewhere 0, which is right where the
    task ended, and unused where the next step follows. After the rollout's last step, see `last_obs`."""
    rollout_extras: Any
    """What the network needs to repeat the step."""
    last_obs: Any = None
    """After a rollout: what the network would see next, leading axes `[1, B]`. The loss estimates the return from there
    by the current critic, as it does for all other steps. None: `bootstrap_values` has that estimate already."""
    measured: dict[str, Any] = field(default_factory=dict)
    """What was asked for to be logged: `actions`, `truncated`, `env` and `net`, the metrics of both."""


def unroll_env(
    env: Environment,
    env_states: Any,
    networks: StatefulModule,
    network_states: Any,
    rollout_length: int,
    reset_key: jax.Array,
    logging_level: LoggingLevel = LoggingLevel.NONE,
) -> tuple[Any, Any, Transition]:
    """Step `B` environments `rollout_length` times, and start a new episode wherever one ends.

    Traceable. The networks' random streams advance in place; nothing else about them changes.

    Args:
        env: Written for one instance.
        env_states: Their states, leading axis `B`.
        networks: Called once a step on the whole batch.
        network_states: Their carries, leading axis `B`.
        rollout_length: Number of steps `T`.
        reset_key: Seeds the new episodes.
        logging_level: What is measured beside.

    Returns:
        Network states, environment states, and the transitions `[T, B]`.

    Raises:
        ValueError: If the value estimates do not have the structure of the rewards.
    """
    graphdef, params, rest = nnx.split(networks, nnx.Param, ...)

    def step(carry: tuple[Any, Any, Any], time: jax.Array) -> tuple[tuple[Any, Any, Any], Transition]:
        variables, carries, states = carry
        acting = nnx.merge(graphdef, params, variables, copy=True)
        key = jax.random.fold_in(reset_key, time)
        carries, states, transition = _step(env, states, acting, carries, key, logging_level)
        return (nnx.state(acting, nnx.Not(nnx.Param)), carries, states), transition

    carry = (rest, network_states, env_states)
    (rest, network_states, env_states), transitions = jax.lax.scan(step, carry, jnp.arange(rollout_length))
    nnx.update(networks, rest)
    return network_states, env_states, ended_at(transitions, env_states.obs)


def _step(
    env: Environment,
    env_states: Any,
    networks: StatefulModule,
    network_states: Any,
    reset_key: jax.Array,
    logging_level: LoggingLevel,
) -> tuple[Any, Any, Transition]:
    result = networks(network_states, env_states.obs)
    output: PPONetworkOutput = result.output
    after = strong(jax.vmap(env.step)(env_states, output.actions))
    done = done_of(after)
    check_value_heads(output.value_estimates, after.reward)
    transition = Transition(
        obs=env_states.obs,
        loglikelihoods=output.loglikelihoods,
        rewards=after.reward,
        done=done,
        bootstrap_values=_values_where_truncated(networks, result.next_state, after),
        rollout_extras=result.rollout_extras,
        measured=_measured(result, after, logging_level),
    )
    network_states = reset_carries(networks, done, strong(result.next_state))
    return network_states, _reset_where_done(env, after, done, reset_key), transition


def _measured(result: StatefulModuleOutput, after: Any, logging_level: LoggingLevel) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    if LoggingLevel.TRAIN_ROLLOUT_STATS in logging_level:
        measured |= {"actions": result.output.actions, "truncated": truncation_of(after)}
    if LoggingLevel.TRAINING_ENV_METRICS in logging_level:
        measured |= {"env": after.metrics, "net": result.metrics}
    return measured


def _reset_where_done(env: Environment, states: Any, done: jax.Array, reset_key: jax.Array) -> Any:
    """States of the next step. Skips the reset while no episode ends: it can cost more than a step."""

    def reset(states: Any) -> Any:
        fresh = jax.vmap(env.reset)(jax.random.split(reset_key, done.shape[0]))
        return select(done, strong(fresh), states)

    return jax.lax.cond(done.any(), reset, lambda states: states, states)


def _values_where_truncated(networks: StatefulModule, network_states: Any, states: Any) -> Any:
    truncated = truncation_of(states)
    zeros = jax.tree.map(jnp.zeros_like, states.reward)

    def evaluate() -> Any:
        return select(truncated, values_of(networks, network_states, states.obs), zeros)

    return jax.lax.cond(truncated.any(), evaluate, lambda: zeros)


def values_of(networks: StatefulModule, network_states: Any, obs: Any) -> Any:
    """Value estimates by a copy of the networks, so that no random stream of theirs advances."""
    return nnx.clone(networks)(network_states, obs).output.value_estimates


def ended_at(transitions: Transition, obs: Any) -> Transition:
    """A rollout's transitions, with the observations `[B, ...]` that follow its last step."""
    return replace(transitions, last_obs=jax.tree.map(lambda leaf: leaf[None], obs))


def bootstrapped(networks: StatefulModule, network_states: Any, rollout: Transition) -> Any:
    """The `bootstrap_values` of a rollout, with those after its last step, where no episode ended there.

    Args:
        networks: Their critic estimates; nothing about them changes.
        network_states: Their carries after the last step.
        rollout: Leading axes `[T, B]`.
    """
    if rollout.last_obs is None:
        return rollout.bootstrap_values
    obs = jax.tree.map(lambda leaf: leaf[0], rollout.last_obs)

    def fill(bootstrap: jax.Array, last: jax.Array) -> jax.Array:
        return bootstrap.at[-1].set(jnp.where(rollout.done[-1], bootstrap[-1], last))

    return jax.tree.map(fill, rollout.bootstrap_values, values_of(networks, network_states, obs))


def check_value_heads(values: Any, rewards: Any) -> None:
    """Check that there is one value estimate a reward.

    Raises:
        ValueError: If there is not.
    """
    if not same_structure(values, rewards):
        raise ValueError(
            f"the critic estimates {jax.tree.structure(values)}, but the environment's reward is "
            f"{jax.tree.structure(rewards)}. Give the network one value head a reward, in the same pytree."
        )
