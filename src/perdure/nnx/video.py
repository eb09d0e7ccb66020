"""Filming a policy, without a trace in the training."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from perdure.nnx.config import VideoConfig
from perdure.nnx.environment import Environment, done_of
from perdure.nnx.evaluation import policy_of
from perdure.nnx.host import HostEnvironments
from perdure.nnx.networks.replay import reset_carries
from perdure.nnx.trees import select, strong


@dataclass(frozen=True)
class VideoData:
    """What a `video_fn` is called with."""

    frames: np.ndarray
    """uint8 `[T + 1, height, width, channels]`: the state before each of `T` steps, and the last one."""
    step: int
    """Env-steps of the training at which it was filmed."""
    episode_reward: float
    """Return of the first episode, as far as it was filmed; of a reward tree, the sum of its leaves."""
    episode_length: int
    """Steps that were filmed, `T`."""


def check_can_render(env: Environment | HostEnvironments) -> None:
    """Check that an environment can be filmed.

    Raises:
        ValueError: If it cannot.
    """
    if isinstance(env, HostEnvironments) or not callable(getattr(env, "render", None)):
        raise ValueError(
            f"config.video.enabled, but {type(env).__name__} has no method render(trajectory, **render_kwargs). "
            "Give it one, pass an eval_env that has one, or turn videos off."
        )


def film(
    env: Environment,
    graphdef: nnx.GraphDef[Any],
    states: tuple[nnx.State, ...],
    config: VideoConfig,
    key: jax.Array,
    step: int,
) -> VideoData:
    """Film the deterministic policy.

    The environment's `render(trajectory, **render_kwargs)` is handed the states as a list, and returns a frame each. If
    the environment has a method `for_rendering(state)`, its result is kept in place of each state, which saves memory
    where a state holds much that no picture shows.

    Args:
        env: Reset with a key derived from `key`.
        graphdef: Structure of the networks.
        states: Their variables.
        config: How long, and how it is rendered.
        key: All randomness.
        step: Env-steps of the training so far.
    """
    check_can_render(env)
    stacked, last, reward = _unroll(env, graphdef, states, config.episode_length, key)
    stacked, last, reward = jax.device_get((stacked, last, reward))
    trajectory = [jax.tree.map(lambda leaf, t=t: leaf[t], stacked) for t in range(config.episode_length)]
    frames = env.render([*trajectory, last], **config.render_kwargs)  # pyright: ignore[reportAttributeAccessIssue]
    return VideoData(np.stack(frames), step, float(reward), config.episode_length)


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def _unroll(
    env: Environment, graphdef: nnx.GraphDef[Any], states: tuple[nnx.State, ...], length: int, key: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """States before each step `[length, ...]`, the state after the last, and the first episode's return."""
    keep = getattr(env, "for_rendering", lambda state: state)
    policy_key, env_key, reset_key = (jax.random.fold_in(key, tag) for tag in range(3))
    networks = policy_of(graphdef, states, policy_key)
    first = strong(jax.vmap(env.reset)(env_key[None]))
    definition, params, rest = nnx.split(networks, nnx.Param, ...)

    def step(carry: tuple[Any, ...], time: jax.Array) -> tuple[tuple[Any, ...], Any]:
        rest, carries, state, ended, total = carry
        acting = nnx.merge(definition, params, rest, copy=True)
        result = acting(carries, state.obs)
        after = strong(jax.vmap(env.step)(state, result.output.actions))
        done = done_of(after)
        total = total + jnp.where(ended, 0.0, sum(leaf[0] for leaf in jax.tree.leaves(after.reward)))
        fresh = strong(jax.vmap(env.reset)(jax.random.fold_in(reset_key, time)[None]))
        carries = reset_carries(acting, done, strong(result.next_state))
        now = (nnx.state(acting, nnx.Not(nnx.Param)), carries, select(done, fresh, after), ended | done[0], total)
        return now, _one(keep, state)

    start = (rest, strong(networks.initialize_state(1)), first, jnp.zeros((), bool), jnp.zeros(()))
    (_, _, last, _, total), stacked = jax.lax.scan(step, start, jnp.arange(length))
    return stacked, _one(keep, last), total


def _one(keep: Any, states: Any) -> Any:
    """The single state of a batch of one."""
    return keep(jax.tree.map(lambda leaf: leaf[0], states))
