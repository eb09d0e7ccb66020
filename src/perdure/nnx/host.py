"""Environments that step on the host, in a batch: what a training needs of them."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from perdure import UsageError
from perdure.nnx.environment import ActionSpec


@functools.partial(jax.tree_util.register_dataclass, data_fields=["obs"], meta_fields=["envs"])
@dataclass(frozen=True)
class HostStates:
    """Where a batch of environments stands; to JAX, its observations."""

    envs: Any
    """The live object that steps: captured, and restored in place, by its adapter."""
    obs: Any
    """What the network sees next: a NumPy array or a pytree of them, leading axis `n_envs`."""


@dataclass(frozen=True)
class HostStep:
    """What a step of the batch brought, NumPy arrays with leading axis `n_envs`."""

    obs: Any
    """What the network sees next: where an episode ended, the first observation of the next one."""
    reward: np.ndarray
    """float32."""
    done: np.ndarray
    """Whether the step ended the episode, for either reason; bool."""
    truncated: np.ndarray
    """Whether it ended by truncation only; bool."""
    final_obs: Any
    """As `obs`, but the last observation of the episode where `truncated`."""


class HostEnvironments(ABC):
    """A batch of environments outside JAX. They reset themselves in the step that ends an episode.

    Their whole state is `HostStates`: restoring `envs` in place and taking `obs` back must make them go on exactly.

    Attributes:
        envs: The live object that steps.
        n_envs: Number of environments.
        action: What actions they take.
    """

    envs: Any
    n_envs: int
    action: ActionSpec

    @abstractmethod
    def start(self, key: jax.Array) -> HostStates:
        """Begin anew with episodes drawn from `key`: equal keys give equal futures, whatever happened before."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> HostStep:
        """Take a step: actions int32 `[n_envs]`, or float32 `[n_envs, size]` in [-1, 1]."""

    @abstractmethod
    def contract(self) -> dict[str, dict[str, Any]]:
        """What a resumed run must find unchanged, by section."""

    def check_number(self, n_envs: int, asked_by: str) -> None:
        """Check that the training asks for as many environments as there are.

        Raises:
            UsageError: If it does not.
        """
        if n_envs != self.n_envs:
            raise UsageError(
                f"{asked_by} is {n_envs}, but {type(self).__name__} steps {self.n_envs} environments. "
                "Set the one to the other."
            )

    def check_actions(self, actions: Any) -> None:
        """Check the shape and dtype of a network's actions.

        Raises:
            TypeError: If the environments do not take them.
        """
        is_discrete = self.action.kind == "discrete"
        shape = (self.n_envs,) if is_discrete else (self.n_envs, self.action.size)
        kind = np.integer if is_discrete else np.floating
        found_shape, found_dtype = getattr(actions, "shape", None), getattr(actions, "dtype", None)
        if found_shape != shape or not np.issubdtype(found_dtype, kind):
            raise TypeError(
                f"{type(self).__name__}: expected {self.action.kind} actions {kind.__name__}{list(shape)}, but the "
                f"network gives {found_dtype}{list(found_shape or ())}. Build it with "
                f"action_kind={self.action.kind!r} and {self.action.size} actions."
            )


def check_evaluation(env: Any, eval_env: Any, n_envs: int) -> None:
    """Check that an evaluation of `n_envs` episodes in `eval_env` cannot touch the environments of the training.

    Raises:
        UsageError: If it could, or if `eval_env` has another number of environments.
    """
    if not isinstance(eval_env, HostEnvironments):
        return
    if isinstance(env, HostEnvironments) and eval_env.envs is env.envs:
        raise UsageError(
            f"eval_env: evaluating in the {type(env).__name__} of the training would move the training's episodes. "
            "Pass an eval_env with environments of its own, or EvalConfig(enabled=False)."
        )
    eval_env.check_number(n_envs, "config.eval.n_envs")
