"""States to save, and the same state in each library's own kind of array."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

State = Mapping[str, Mapping[str, np.ndarray]]
"""Component -> name -> float32 array."""

Make = Callable[[np.ndarray], Any]
"""Turns an array into some library's own."""

PPO_ARRAYS = {"env_states": 14, "network_states": 10, "networks": 14, "normalizer": 6, "optimizer": 28, "returns": 8}
"""Arrays in each component of the PPO-sized state: 80 in all."""


def ppo_state(seed: int) -> State:
    """40 kernels of 132 × 128 and 40 biases of 128 in 6 components: 2.6 MiB."""
    rng = np.random.default_rng(seed)
    shapes = ((132, 128), (128,))
    return {
        component: {
            f"layer_{at // 2}.{'bias' if at % 2 else 'kernel'}": rng.standard_normal(shapes[at % 2], np.float32)
            for at in range(number)
        }
        for component, number in PPO_ARRAYS.items()
    }


def large_state(mebibytes: int, seed: int = 0) -> State:
    """16 arrays in 4 components."""
    rng = np.random.default_rng(seed)
    rows = mebibytes * 2**20 // 16 // 4 // 1024
    return {
        f"component_{number}": {f"array_{at}": rng.standard_normal((rows, 1024), np.float32) for at in range(4)}
        for number in range(4)
    }


def size_bytes(state: State) -> int:
    """Bytes of all arrays."""
    return sum(array.nbytes for arrays in state.values() for array in arrays.values())


def made(state: State, make: Make) -> dict[str, dict[str, Any]]:
    """The state with each array made into another kind, finished when this returns."""
    return {name: {key: make(array) for key, array in arrays.items()} for name, arrays in state.items()}


def as_jax(array: np.ndarray) -> jax.Array:
    """A JAX array in memory of its own, which nobody has looked at from the host yet."""
    return jax.block_until_ready(jnp.array(array, copy=True))


def as_numpy(array: np.ndarray) -> np.ndarray:
    """A NumPy array in memory of its own."""
    return array.copy()


def as_torch(array: np.ndarray) -> Any:
    """A PyTorch tensor in memory of its own."""
    return importlib.import_module("torch").from_numpy(array.copy())
