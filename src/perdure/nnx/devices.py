"""Splitting the environments of a training over several devices, which keep equal copies of everything else.

On a processor with several cores this is what uses them: `jax.config.update("jax_num_cpu_devices", n)`, before JAX
does anything else, makes `n` devices of it. How many there are decides how gradients are summed, and so the last bits
of every number: the count is part of the configuration.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perdure.nnx.state import Arrays

AXIS = "devices"
"""Name of the axis along which the environments are split."""

Tree = TypeVar("Tree")


def provide(n_devices: int) -> None:
    """Make a CPU count as so many devices, if JAX has not looked at it yet; for processes that do nothing else."""
    if n_devices > 1:
        try:
            jax.config.update("jax_num_cpu_devices", n_devices)
        except RuntimeError:  # JAX has looked: `mesh_of` says whether there are enough
            return


def mesh_of(n_devices: int) -> Mesh:
    """The first `n_devices` devices.

    Raises:
        ValueError: If there are fewer.
    """
    found = jax.devices()
    if len(found) < n_devices:
        raise ValueError(
            f"PPOConfig.n_devices={n_devices}, but JAX has {len(found)} {found[0].platform} device(s). On a CPU, put "
            f'jax.config.update("jax_num_cpu_devices", {n_devices}) before the first use of JAX, or lower n_devices.'
        )
    return Mesh(found[:n_devices], (AXIS,))


class Specs(NamedTuple):
    """Where each part of `Arrays` lives: carries and environments are split, everything else is on each device."""

    params: PartitionSpec = PartitionSpec()
    rest: PartitionSpec = PartitionSpec()
    optimizer: PartitionSpec = PartitionSpec()
    network_states: PartitionSpec = PartitionSpec(AXIS)
    env_states: PartitionSpec = PartitionSpec(AXIS)
    rng_key: PartitionSpec = PartitionSpec()


def specs() -> Any:
    """`Specs` in the form that JAX asks for: an `Arrays` of them."""
    return Arrays(*Specs())  # pyright: ignore[reportArgumentType]


def place(arrays: Arrays, n_devices: int) -> Arrays:
    """The arrays where a training on so many devices wants them, so that its first iteration compiles for all."""
    if n_devices == 1:
        return arrays
    mesh = mesh_of(n_devices)
    return Arrays(
        *(jax.device_put(part, NamedSharding(mesh, spec)) for part, spec in zip(arrays, Specs(), strict=True))
    )


def on_one_device(tree: Tree) -> Tree:
    """What is equal on all devices, from the first of them."""

    def first(leaf: Any) -> Any:
        return leaf.addressable_data(0) if len(leaf.devices()) > 1 else leaf

    return jax.tree.map(first, tree)


@dataclass(frozen=True)
class Devices:
    """One device, or all of them as seen from inside of the function that runs on each."""

    n_devices: int = 1
    """How many."""

    def mean(self, tree: Tree) -> Tree:
        """The mean over the devices, leaf by leaf.

        Leaves travel as one array a dtype, because each exchange makes devices wait for each other.
        """
        if self.n_devices == 1:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        means = list(leaves)
        for dtype in sorted({leaf.dtype for leaf in leaves}, key=str):
            places = [at for at, leaf in enumerate(leaves) if leaf.dtype == dtype]
            joined = jax.lax.pmean(jnp.concatenate([leaves[at].ravel() for at in places]), AXIS)
            ends = np.cumsum([leaves[at].size for at in places])[:-1]
            for at, part in zip(places, jnp.split(joined, ends), strict=True):
                means[at] = part.reshape(leaves[at].shape)
        return jax.tree.unflatten(structure, means)

    def join(self, tree: Tree) -> Tree:
        """Leaves `[T, B / n_devices, ...]` of all devices as `[T, B, ...]`."""
        if self.n_devices == 1:
            return tree
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS, axis=1, tiled=True), tree)

    def stack(self, tree: Tree) -> Tree:
        """Leaves of all devices with a leading axis of devices; as they are, if there is one device."""
        return tree if self.n_devices == 1 else jax.lax.all_gather(tree, AXIS)

    def own_key(self, key: jax.Array) -> jax.Array:
        """A key that no other device has; the same one, if there is one device."""
        return key if self.n_devices == 1 else jax.random.fold_in(key, jax.lax.axis_index(AXIS))

    def own_streams(self, networks: nnx.Module) -> list[jax.Array]:
        """Let the networks draw other numbers than on other devices; returns the keys that they have in common."""
        streams = _streams(networks) if self.n_devices > 1 else []
        common = [stream.key[...] for stream in streams]
        for stream, key in zip(streams, common, strict=True):
            stream.key[...] = self.own_key(key)
        return common

    def common_streams(self, networks: nnx.Module, common: list[jax.Array]) -> None:
        """Undo `own_streams`; how far the streams have come is the same on all devices, and stays."""
        streams = _streams(networks) if self.n_devices > 1 else []
        for stream, key in zip(streams, common, strict=True):
            stream.key[...] = key


def _streams(networks: nnx.Module) -> list[nnx.RngStream]:
    return [node for _, node in nnx.iter_graph(networks) if isinstance(node, nnx.RngStream)]


def mean_and_deviation(values: jax.Array, devices: Devices) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation over all devices."""
    if devices.n_devices == 1:
        return values.mean(), values.std()
    # One exchange: the variance is the mean of the variances and the variance of the means (Chan et al., 1979).
    means, variances = devices.stack(jnp.stack([values.mean(), values.var()])).T
    return means.mean(), jnp.sqrt(variances.mean() + means.var())
