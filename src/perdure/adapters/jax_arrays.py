"""JAX arrays with their weak types, and typed PRNG keys."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perdure.adapters.adapter import ExactAdapter
from perdure.adapters.numpy_arrays import check_array
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, PRNGKey, Tree
from perdure.tree.paths import format_path


class JaxArray(ExactAdapter):
    """JAX arrays: a new one is returned, on the target's devices, with the saved weak type.

    JAX arrays are immutable, so whether two places hold the same one is no part of the state.
    """

    id = "jax-array"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A view of the array on the host."""
        refuse_partial(obj, walk)
        host = np.ascontiguousarray(np.asarray(obj)).reshape(obj.shape)
        return Array(host, weak_type=obj.weak_type, immutable=True)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Dtype and shape must be the same."""
        return check_array(np.dtype(obj.dtype), obj.shape, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved array where the target's is."""
        return on_device_of(obj, with_weak_type(tree.value, weak_type=tree.weak_type))


class JaxKey(ExactAdapter):
    """Typed PRNG keys and arrays of them."""

    id = "jax-key"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Implementation and key data."""
        refuse_partial(obj, walk)
        data = np.ascontiguousarray(np.asarray(jax.random.key_data(obj)))
        return PRNGKey(str(jax.random.key_impl(obj)), Array(data, immutable=True))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Implementation and shape must be the same."""
        name = str(jax.random.key_impl(obj))
        if not isinstance(tree, PRNGKey) or tree.implementation != name:
            advice = "Make keys with the run's implementation (jax_default_prng_impl)."
            return [walk.finding(summary(tree), f"{name} key", advice)]
        data = jax.eval_shape(jax.random.key_data, obj)
        return check_array(np.dtype(data.dtype), data.shape, tree.data, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved key where the target's is."""
        data = jnp.array(tree.data.value, copy=True)
        return on_device_of(obj, jax.random.wrap_key_data(data, impl=tree.implementation))


def rebuild_array(tree: Tree, walk: Walk) -> jax.Array:
    """An array without a target, on the default device."""
    return with_weak_type(tree.value, weak_type=tree.weak_type)


def rebuild_key(tree: Tree, walk: Walk) -> jax.Array:
    """A key without a target, on the default device."""
    return jax.random.wrap_key_data(jnp.array(tree.data.value, copy=True), impl=tree.implementation)


def refuse_partial(obj: Any, walk: Walk) -> None:
    """Arrays of which this process holds only a part, or none any more.

    Raises:
        CaptureError: the array is deleted (donated) or spans processes.
    """
    if obj.is_deleted():
        message = "the array was deleted, probably donated to a jitted call; hand in the call's result instead."
        raise CaptureError(f"{format_path(walk.path)}: {message}")
    if not obj.is_fully_addressable:
        raise CaptureError(f"{format_path(walk.path)}: the array spans several processes; a run is one process.")


def with_weak_type(value: np.ndarray, *, weak_type: bool) -> jax.Array:
    """A JAX array with exactly this dtype, these bits and this weak type, in memory of its own."""
    array = jnp.array(value, copy=True)
    if not weak_type:
        return array
    # Python numbers are JAX's only public source of weak types; writing into an array keeps the array's own.
    python_zero = {"i": 0, "f": 0.0, "c": 0j}[np.dtype(value.dtype).kind]
    weak = jnp.broadcast_to(jnp.asarray(python_zero), value.shape)
    return weak.at[...].set(array) if weak.dtype == array.dtype else array


def on_device_of(target: jax.Array, array: jax.Array) -> jax.Array:
    """The array on the target's devices, committed to them only if the target is.

    A committed array makes `jit` follow it, so the difference would retrace and could move later work.
    """
    return jax.device_put(array, target.sharding) if target.committed else array
