"""The state of a training, as its user sees it (live objects) and as compiled functions see it (arrays)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import optax
from flax import nnx

from perdure.nnx.config import PPOConfig
from perdure.nnx.environment import Environment, check_environment, checked_state, done_of
from perdure.nnx.host import HostEnvironments, HostStates
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.trees import strong

# Tags that keep keys of one seed apart. `nnx.Rngs(seed)` folds 0, 1, 2, … into the same root for its own draws.
_TRAINING = 0x7472_6169
_EVALUATION = 0x6576_616C
_VIDEO = 0x7669_6465


@dataclass(frozen=True)
class TrainingState:
    """Everything a training consists of between two iterations.

    The networks and the optimizer are live objects and change in place as training goes on; the rest are
    values.
    """

    networks: StatefulModule
    """Actor and critic, with normaliser and random streams."""
    network_states: Any
    """Carries of the networks, leading axis `n_envs`; without leaves for a network without carry."""
    env_states: Any
    """States of the environments in mid-episode, leading axis `n_envs`; `HostStates` where they step on the host."""
    optimizer: nnx.Optimizer[Any]
    """The optimizer of the networks' parameters."""
    rng_key: jax.Array
    """Typed key from which resets and minibatches are drawn; actions are drawn from the networks' own
    streams."""
    steps_taken: int
    """Env-steps taken, exact."""
    eval_history: tuple[Mapping[str, Any], ...] = ()
    """Evaluations so far, where no run keeps them."""
    contract: Mapping[str, Mapping[str, Any]] | None = None
    """What a training that goes on from here must have in common with the one that led here; None: no training yet."""


class Arrays(NamedTuple):
    """A `TrainingState` without its objects: a pytree that compiled functions take, donated, and return."""

    params: nnx.State
    """Trainable variables."""
    rest: nnx.State
    """All other variables of the networks: statistics, random streams."""
    optimizer: nnx.State
    """Variables of the optimizer."""
    network_states: Any
    """As in `TrainingState`."""
    env_states: Any
    """As in `TrainingState`."""
    rng_key: jax.Array
    """As in `TrainingState`."""


@dataclass(frozen=True)
class Structure:
    """What `Arrays` lacks to become objects again; hashable, and static in compiled functions."""

    networks: nnx.GraphDef[Any]
    """Structure of the networks."""
    optimizer: nnx.GraphDef[Any]
    """Structure of the optimizer."""

    def __hash__(self) -> int:
        """Computed once: each call of a compiled function asks for it, and graphs are large."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.networks, self.optimizer))


def new_training_state(
    env: Environment | HostEnvironments,
    networks: StatefulModule,
    n_envs: int,
    seed: int,
    learning_rate: float = 1e-4,
    gradient_clipping: float | None = None,
    weight_decay: float | None = None,
) -> TrainingState:
    """A state in which nothing has been learned yet.

    Args:
        env: Reset `n_envs` times, or started if it steps on the host.
        networks: Used as they are, and put into training mode.
        n_envs: Size of the batch.
        seed: Seeds the environments and the key of the training.
        learning_rate: Adam's step size.
        gradient_clipping: Global norm at which gradients are clipped, or None.
        weight_decay: AdamW's weight decay, or None for Adam; True is optax's default.

    Raises:
        TypeError: If the environment's steps and resets differ in type, or a state is no pytree of arrays.
    """
    networks.train()
    reset_key, rng_key = jax.random.split(training_key(seed))
    env_states = fresh_env_states(env, reset_key, n_envs)
    network_states = strong(networks.initialize_state(n_envs))
    outputs = nnx.eval_shape(lambda nets: nets(network_states, env_states.obs).output, networks)
    if isinstance(env, HostEnvironments):
        env.check_actions(outputs.actions)
    else:
        check_environment(env, env_states, outputs.actions)
    return TrainingState(
        networks=networks,
        network_states=network_states,
        env_states=env_states,
        optimizer=nnx.Optimizer(
            networks, make_optimizer(learning_rate, gradient_clipping, weight_decay), wrt=nnx.Param
        ),
        rng_key=rng_key,
        steps_taken=0,
    )


@functools.lru_cache(maxsize=64, typed=True)
def make_optimizer(
    learning_rate: float, gradient_clipping: float | None, weight_decay: float | None
) -> optax.GradientTransformation:
    """Adam (AdamW with a weight decay), after clipping by the global norm where one is given.

    Cached, because optax compares by identity: equal hyper-parameters then share one compiled training step.
    """
    if weight_decay is None:
        adam = optax.adam(learning_rate)
    elif weight_decay is True:
        adam = optax.adamw(learning_rate)
    else:
        adam = optax.adamw(learning_rate, weight_decay=weight_decay)
    return adam if gradient_clipping is None else optax.chain(optax.clip_by_global_norm(gradient_clipping), adam)


def optimizer_of(config: PPOConfig) -> optax.GradientTransformation:
    """The optimizer that a configuration describes."""
    return make_optimizer(config.learning_rate, config.gradient_clipping, config.weight_decay)


def split_state(state: TrainingState) -> tuple[Structure, Arrays]:
    """Take a state apart; the arrays are copies, so that donating them leaves the state's own alone."""
    networks, params, rest = nnx.split(state.networks, nnx.Param, ...)
    optimizer, optimizer_state = nnx.split(state.optimizer)
    arrays = Arrays(params, rest, optimizer_state, state.network_states, state.env_states, state.rng_key)
    return Structure(networks, optimizer), jax.tree.map(lambda leaf: leaf.copy(), arrays)


def live_variables(state: TrainingState) -> list[nnx.Variable[Any]]:
    """The variables of the objects of a state, in the order of `Arrays`: `join_state` then need not look for them.

    They stay the same for as long as the objects keep their structure.
    """
    _, params, rest = nnx.split(state.networks, nnx.Param, ...)
    _, optimizer = nnx.split(state.optimizer)
    return [
        *_found_in(state.networks, params),
        *_found_in(state.networks, rest),
        *_found_in(state.optimizer, optimizer),
    ]


def join_state(
    state: TrainingState, arrays: Arrays, steps_taken: int, variables: list[nnx.Variable[Any]] | None = None
) -> TrainingState:
    """Write arrays back into the objects of `state`, and return a state with them and the other values.

    Args:
        state: Whose objects are written to.
        arrays: What to write.
        steps_taken: Of the new state.
        variables: The state's `live_variables`; looked for if None.
    """
    parts = (arrays.params, arrays.rest, arrays.optimizer)
    sources = jax.tree.leaves(parts, is_leaf=lambda node: isinstance(node, nnx.Variable))
    for variable, source in zip(live_variables(state) if variables is None else variables, sources, strict=True):
        variable.update_from_state(source)
    return replace(
        state,
        network_states=arrays.network_states,
        env_states=arrays.env_states,
        rng_key=arrays.rng_key,
        steps_taken=steps_taken,
    )


def _found_in(obj: Any, state: nnx.State) -> list[nnx.Variable[Any]]:
    by_path = {path: node for path, node in nnx.iter_graph(obj) if isinstance(node, nnx.Variable)}
    return [by_path[path] for path, _ in nnx.to_flat_state(state)]


def training_key(seed: int) -> jax.Array:
    """The key from which all of the training's own randomness descends."""
    return jax.random.fold_in(jax.random.key(seed), _TRAINING)


def evaluation_key(seed: int, env_steps: int) -> jax.Array:
    """The key of the evaluation after `env_steps`; it has no other relative than the seed.

    A pure function of seed and step, so that evaluating more often, or not at all, changes no training.
    """
    return _key_at(seed, _EVALUATION, env_steps)


def video_key(seed: int, env_steps: int) -> jax.Array:
    """The key of the video after `env_steps`; as `evaluation_key`, and apart from it."""
    return _key_at(seed, _VIDEO, env_steps)


def _key_at(seed: int, tag: int, env_steps: int) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(seed), tag)
    return jax.random.fold_in(jax.random.fold_in(key, env_steps >> 32), env_steps & 0xFFFF_FFFF)


def fresh_env_states(env: Environment | HostEnvironments, key: jax.Array, n_envs: int) -> Any:
    """States of `n_envs` environments, or `HostStates`, at the start of episodes drawn with `key`.

    Raises:
        UsageError: If environments on the host are of another number.
    """
    if isinstance(env, HostEnvironments):
        env.check_number(n_envs, "config.ppo.n_envs")
        return env.start(key)
    return reset_all(env, jax.random.split(key, n_envs))


def number_of_envs(env_states: Any) -> int:
    """How many environments the states are of."""
    if isinstance(env_states, HostStates):
        return jax.tree.leaves(env_states.obs)[0].shape[0]
    return done_of(env_states).shape[0]


@functools.partial(jax.jit, static_argnums=0)
def reset_all(env: Environment, keys: jax.Array) -> Any:
    """Fresh states, leading axis of the keys."""
    return strong(jax.vmap(lambda key: checked_state(env, env.reset(key)))(keys))
