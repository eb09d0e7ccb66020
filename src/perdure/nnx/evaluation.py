"""Evaluating a policy on whole episodes, without a trace in the training."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from perdure.nnx.environment import Environment, done_of
from perdure.nnx.metrics import Metrics, Percentiles, statistics
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.trees import strong


def eval_rollout(
    env: Environment,
    networks: StatefulModule,
    n_envs: int,
    max_episode_length: int,
    key: jax.Array,
    logging_percentiles: Percentiles = None,
) -> dict[str, float]:
    """Returns and lengths of `n_envs` episodes under the deterministic policy.

    Exactly the first episode of each environment counts. The networks are not touched: a view of them in
    evaluation mode acts, its random streams (if its policy uses any) start from `key`, and its carries are
    its own.

    Args:
        env: Reset with keys derived from `key`.
        networks: The policy.
        n_envs: Number of episodes.
        max_episode_length: Steps after which an unfinished episode is cut off.
        key: All randomness of the evaluation.
        logging_percentiles: Percentiles of returns and lifespans, 0 to 100, beside mean and standard deviation.

    Returns:
        `episode_reward_mean` and `_std`, the return of an episode (with `/<path>` behind for each leaf of a reward
        tree), and `episode_reward/p<level>`; `lifespan_mean`, `lifespan_std` and `lifespan/p<level>`, its steps; and
        `episodes_cut_off`, the number that had not ended by then.
    """
    graphdef, state = nnx.split(networks)
    metrics = evaluate(env, graphdef, (state,), n_envs, max_episode_length, logging_percentiles, key)
    return {name: value.item() for name, value in jax.device_get(metrics).items()}


@functools.partial(jax.jit, static_argnums=(0, 1, 3, 4, 5))
def evaluate(
    env: Environment,
    graphdef: nnx.GraphDef[Any],
    states: tuple[nnx.State, ...],
    n_envs: int,
    max_episode_length: int,
    logging_percentiles: Percentiles,
    key: jax.Array,
) -> Metrics:
    """`eval_rollout` on split networks; scalars that may still be under computation."""
    policy = policy_of(graphdef, states, jax.random.fold_in(key, 0))
    episodes = _play(env, policy, n_envs, max_episode_length, jax.random.fold_in(key, 1))
    metrics = summary("lifespan", episodes.length, logging_percentiles)
    for path, returns in jax.tree_util.tree_leaves_with_path(episodes.returns):
        where = "/" + jax.tree_util.keystr(path, simple=True, separator="/") if path else ""
        metrics |= summary("episode_reward", returns, logging_percentiles, where)
    return metrics | {"episodes_cut_off": jnp.sum(~episodes.done, dtype=jnp.int32)}


def summary(name: str, values: jax.Array, percentiles: Percentiles, where: str = "") -> Metrics:
    """Mean, standard deviation and percentiles of what each episode came to."""
    levels = statistics(f"{name}{where}", values, percentiles) if percentiles else {}
    values = values.astype(jnp.float32)
    return {f"{name}_mean{where}": jnp.mean(values), f"{name}_std{where}": jnp.std(values), **levels}


class _Episodes(NamedTuple):
    """A batch of episodes in progress; leaves with leading axis `n_envs`."""

    rest: nnx.State
    network_states: Any
    env_states: Any
    done: jax.Array
    returns: Any
    length: jax.Array
    time: jax.Array


def policy_of(graphdef: nnx.GraphDef[Any], states: tuple[nnx.State, ...], key: jax.Array) -> StatefulModule:
    """The networks in evaluation mode, with random streams of their own."""
    networks = nnx.merge(graphdef, *states)
    networks.eval()
    for index, (_, node) in enumerate(nnx.iter_graph(networks)):
        if isinstance(node, nnx.RngStream):
            node.key[...] = jax.random.fold_in(key, index)
            node.count[...] = jnp.zeros_like(node.count[...])
    return networks


def _play(
    env: Environment, networks: StatefulModule, n_envs: int, max_episode_length: int, key: jax.Array
) -> _Episodes:
    network_states = strong(networks.initialize_state(n_envs))
    env_states = strong(jax.vmap(env.reset)(jax.random.split(key, n_envs)))
    graphdef, params, rest = nnx.split(networks, nnx.Param, ...)

    def step(now: _Episodes) -> _Episodes:
        acting = nnx.merge(graphdef, params, now.rest, copy=True)
        result = acting(now.network_states, now.env_states.obs)
        after = strong(jax.vmap(env.step)(now.env_states, result.output.actions))
        alive = ~now.done
        returns = jax.tree.map(lambda total, reward: total + jnp.where(alive, reward, 0), now.returns, after.reward)
        return _Episodes(
            rest=nnx.state(acting, nnx.Not(nnx.Param)),
            network_states=strong(result.next_state),
            env_states=after,
            done=now.done | done_of(after),
            returns=returns,
            length=now.length + alive,
            time=now.time + 1,
        )

    start = _Episodes(
        rest=rest,
        network_states=network_states,
        env_states=env_states,
        done=jnp.zeros((n_envs,), bool),
        returns=jax.tree.map(jnp.zeros_like, env_states.reward),
        length=jnp.zeros((n_envs,), jnp.int32),
        time=jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(lambda now: ~now.done.all() & (now.time < max_episode_length), step, start)
