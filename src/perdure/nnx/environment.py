"""The environment protocol (that of MuJoCo Playground), its state, and the check of an environment."""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

import perdure
from perdure import UsageError

if TYPE_CHECKING:
    from perdure.nnx.host import HostEnvironments

State = TypeVar("State")

_log = logging.getLogger("perdure")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """State of one environment (or, with a leading axis on every leaf, of a batch).

    Any pytree with the attributes `obs`, `done`, `reward`, `info` and `metrics` serves as well; this one is
    for environments that bring none of their own.
    """

    data: Any
    """What the environment alone understands, including every PRNG key it needs to go on."""
    obs: Any
    """Observation: an array or a pytree of arrays."""
    reward: Any
    """Reward of the last step, float32: a scalar, or a pytree with one leaf a value head."""
    done: jax.Array
    """Whether the last step ended the episode, for either reason; bool, or a number that is not 0."""
    info: dict[str, Any] = field(default_factory=dict)
    """Side information. `info["truncation"]` is set where `done` is a time limit and not an end of the
    task."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Scalars to log."""


@dataclass(frozen=True)
class ActionSpec:
    """What actions an environment takes."""

    kind: Literal["discrete", "continuous"]
    """Discrete actions are int32 scalars in [0, size); continuous ones float32 `[size]` in [-1, 1]."""
    size: int
    """Number of discrete actions, or of continuous dimensions."""


class Environment(Protocol):
    """One environment, written for a single instance: callers batch it with `jax.vmap`.

    Both methods are pure, traceable and deterministic: all randomness comes from the key given to `reset` and
    from keys kept in the state. They return states of the same structure, shapes and dtypes. An environment
    does not reset itself: the state after the last step of an episode is the true final one, so that a truncated
    episode can be bootstrapped from its last observation; callers reset where `done`.

    Instances are static arguments of compiled functions, and so must be hashable and never change. A resume compares
    their class and attributes, or what an optional method `contract() -> {section: {key: value}}` says in their place.
    """

    def reset(self, key: jax.Array, /) -> Any:
        """The first state of an episode drawn with `key` (a typed PRNG key)."""
        ...

    def step(self, state: Any, action: Any, /) -> Any:
        """The state after `action`."""
        ...


def contract_of(env: "Environment | HostEnvironments") -> dict[str, Any]:
    """The contract sections of an environment: what its method `contract` says, or else its class and attributes.

    An attribute that cannot be compared is told by its class alone, with a warning: a method `contract` can tell more.
    """
    describe = getattr(env, "contract", None)
    if callable(describe):
        return cast("dict[str, Any]", describe())
    told: dict[str, Any] = {"class": type(env)}
    opaque = []
    for name, value in _attributes(env).items():
        inner = getattr(value, "contract", None)
        told[name] = inner() if callable(inner) and not isinstance(value, type) else value
        if not _is_comparable(told[name]):
            told[name] = type(value)
            opaque.append(name)
    if opaque:
        _log.warning(
            "%s: the attributes %s cannot be compared at a resume; a method contract() can tell what matters.",
            type(env).__name__,
            ", ".join(opaque),
        )
    return {"env": told}


def _attributes(env: "Environment | HostEnvironments") -> dict[str, Any]:
    fields = dataclasses.fields(env) if dataclasses.is_dataclass(env) else ()
    return {**{entry.name: getattr(env, entry.name) for entry in fields}, **getattr(env, "__dict__", {})}


def _is_comparable(value: Any) -> bool:
    try:
        perdure.contract_of({"value": value})
    except UsageError:
        return False
    return True


def done_of(state: Any) -> jax.Array:
    """Where the episode is over, bool, of the shape of `state.done`."""
    return jnp.asarray(state.done).astype(bool)


def truncation_of(state: Any) -> jax.Array:
    """Where the episode is over by truncation only, bool; nowhere, if the environment never says.

    It says so by `info["truncation"]` or, as nnx-ppo's environments do, `info["truncated"]`.
    """
    done = done_of(state)
    truncation = state.info.get("truncation", state.info.get("truncated"))
    if truncation is None:
        return jnp.zeros_like(done)
    return done & jnp.asarray(truncation).astype(bool)


def checked_state(env: Environment, state: State) -> State:
    """A state from `env.reset`, as it is, if JAX sees arrays in it and nothing else.

    Raises:
        TypeError: If an object in it is no array and no registered pytree; it is named.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
            place = jax.tree_util.keystr(path, simple=True, separator="/") or "the state itself"
            raise TypeError(
                f"{type(env).__name__}: reset returned a state that is no pytree of arrays: {place} is of class "
                f"{type(leaf).__name__}. Register the class with jax.tree_util.register_dataclass, or keep arrays in "
                "dicts, tuples or EnvState."
            )
    return state


def check_environment(env: Environment, state: Any, actions: Any) -> None:
    """Check that a step keeps the structure, shapes and dtypes of a state (without running it).

    Args:
        env: The environment.
        state: A batch of its states.
        actions: Shapes and dtypes of a batch of actions.

    Raises:
        TypeError: If it does not; every differing leaf is named.
    """
    after = jax.eval_shape(jax.vmap(env.step), state, actions)
    before = jax.eval_shape(lambda: state)
    expected, found = _leaf_types(before), _leaf_types(after)
    differences = [
        f"  {path}: {expected.get(path, 'absent')} after reset, {found.get(path, 'absent')} after step"
        for path in sorted(expected.keys() | found.keys())
        if expected.get(path) != found.get(path)
    ]
    if differences:
        listing = "\n".join(differences)
        raise TypeError(
            f"{type(env).__name__}: reset and step return states of different types:\n{listing}\n"
            "Make both return the same leaves, shapes and dtypes (cast with .astype, fill info with zeros)."
        )


def _leaf_types(tree: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): f"{x.dtype}{list(x.shape)}" for path, x in leaves}
