"""Evaluating a policy in environments on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from perdure.nnx.evaluation import policy_of, summary
from perdure.nnx.host import HostEnvironments
from perdure.nnx.host_rollout import act
from perdure.nnx.metrics import Metrics, Percentiles
from perdure.nnx.trees import strong


def evaluate_on_host(
    env: HostEnvironments,
    networks: nnx.GraphDef[Any],
    states: tuple[nnx.State, ...],
    n_envs: int,
    max_episode_length: int,
    logging_percentiles: Percentiles,
    key: jax.Array,
) -> Metrics:
    """What `evaluate` finds, in environments that are started anew with each evaluation.

    Args:
        env: Not those of the training, whose episodes an evaluation would move.
        networks: Structure of the networks.
        states: Their variables, which stay as they are.
        n_envs: Number of episodes.
        max_episode_length: Steps after which an unfinished episode is cut off.
        logging_percentiles: As in `eval_rollout`.
        key: All randomness of the evaluation.
    """
    policy = policy_of(networks, jax.tree.map(jnp.copy, states), jax.random.fold_in(key, 0))
    network_states = strong(policy.initialize_state(n_envs))
    acting, params, rest = nnx.split(policy, nnx.Param, ...)
    obs = env.start(jax.random.fold_in(key, 1)).obs
    done, returns, length = np.zeros(n_envs, bool), np.zeros(n_envs, np.float32), np.zeros(n_envs, np.int32)
    for _ in range(max_episode_length):
        rest, network_states, decision = act(acting, params, rest, network_states, obs)
        after = env.step(np.asarray(decision.actions))
        returns += np.where(done, np.float32(0), after.reward)
        length += ~done
        done |= after.done
        obs = after.obs
        if done.all():
            break
    found = summary("lifespan", jnp.asarray(length), logging_percentiles)
    found |= summary("episode_reward", jnp.asarray(returns), logging_percentiles)
    return found | {"episodes_cut_off": jnp.sum(jnp.asarray(~done), dtype=jnp.int32)}
