"""How the small environments end: the task's own end, or a limit of steps, and which of the two it was."""

from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp


def ending(terminated: jax.Array, time: jax.Array, episode_length: int | None) -> tuple[jax.Array, dict[str, Any]]:
    """`done` and `info` of a state; a step that does both, end the task and reach the limit, ends the task.

    Args:
        terminated: Whether the task has ended, bool.
        time: Steps since the reset, int32.
        episode_length: Steps after which an episode is cut off, or None.

    Returns:
        `done`, bool, and `{"truncation": bool}`.
    """
    reached = jnp.zeros((), bool) if episode_length is None else time >= episode_length
    return terminated | reached, {"truncation": reached & ~terminated}


def check_positive(env: Any, *names: str) -> None:
    """Check that the named fields of a small environment are positive numbers; None stands for "none".

    Raises:
        ValueError: If one is not; its name and value are told.
    """
    for name in names:
        value = getattr(env, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{type(env).__name__}.{name} must be positive and finite, got {value!r}.")


def describe(env: Any, **interface: Any) -> dict[str, dict[str, Any]]:
    """Contract sections of a small environment: its name and fields, and what a policy sees and does."""
    return {"env": {"name": type(env).__name__, **asdict(env)}, "interface": interface}
