"""optax transformations: no state of their own; what their closures bind and what they compute are facts."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perdure.adapters.containers import NamedTuple
from perdure.adapters.facts import Fact
from perdure.adapters.walk import Walk
from perdure.contract.facts import TRACE, facts_in, traced
from perdure.contract.naming import name_of
from perdure.format.digests import Digest
from perdure.tree.leaves import Tree

_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Transformation(NamedTuple):
    """`optax.GradientTransformation`: a named tuple of functions.

    Names and closures tell what can be read (`…/step_size`). What cannot be read (a schedule that is a lambda, an
    array in a closure) is told by the digest of the traced update, which holds under one version of JAX.
    """

    id = "optax-transformation"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The functions' facts, and the trace."""
        walk.fact(_traced(obj), TRACE)
        return super().capture(obj, walk)


class MultiSteps(Fact):
    """`optax.MultiSteps`: an object, not a tuple, with the functions that it wraps as attributes."""

    id = "optax-multi-steps"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class, its attributes, what the wrapped functions bind, and the trace."""
        walk.fact(name_of(type(obj)))
        walk.fact(_traced(obj.gradient_transformation()), TRACE)
        for name, part in vars(obj).items():
            for at, each in enumerate(part if isinstance(part, tuple) else (part,)):
                for below, text in facts_in(each):
                    walk.fact(text, name, at, *below)


def _traced(transformation: Any) -> str:
    try:
        hash(transformation)
    except TypeError:  # an update that is an object of a dataclass
        return trace.__wrapped__(transformation)
    return trace(transformation)


@lru_cache(maxsize=64)
def trace(transformation: Any) -> str:
    """The digest of the update of a matrix and a vector, traced.

    A transformation that needs the very parameters it was made for (a mask) cannot be traced alone, and says so.
    """
    version = f"jax {jax.__version__}"
    params = {"matrix": jnp.zeros((3, 2), jnp.float32), "vector": jnp.zeros(2, jnp.float32)}
    try:
        state = jax.eval_shape(transformation.init, params)
        jaxpr = jax.make_jaxpr(transformation.update)(params, state, params)
    except Exception as error:  # noqa: BLE001 - a user's own transformation may raise anything
        return traced(f"cannot be traced alone: {type(error).__name__}", version)
    digest = Digest()
    digest.update(_ADDRESS.sub("", str(jaxpr.jaxpr)).encode())
    for constant in _constants(jaxpr):
        is_key = jnp.issubdtype(jnp.asarray(constant).dtype, jax.dtypes.prng_key)
        digest.update(np.ascontiguousarray(jax.random.key_data(constant) if is_key else constant).tobytes())
    return traced(digest.text(), version)


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Arrays that a traced function holds: its own, those of functions jitted inside of it, and literals."""
    yield from getattr(jaxpr, "consts", ())
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield from (variable.val for variable in equation.invars if hasattr(variable, "val"))
        for inner in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from _constants(inner)


def _is_jaxpr(node: Any) -> bool:
    return hasattr(node, "eqns") or hasattr(getattr(node, "jaxpr", None), "eqns")
