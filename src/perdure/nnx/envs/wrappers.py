"""Environments around environments: a limit of steps, and another scale of rewards."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from perdure.nnx.environment import Environment, contract_of, done_of, truncation_of

COUNTER = "step_counter"
"""Where `EpisodeWrapper` keeps its count in the `info` of a state."""


@dataclass(frozen=True)
class _Wrapper:
    """What wrappers share: equality by their fields, and the inner environment's sizes where it tells them."""

    env: Environment
    """The environment inside."""

    @property
    def obs_size(self) -> Any:
        """As the inner environment has it; absent where it has none."""
        return self.env.obs_size  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def action(self) -> Any:
        """As the inner environment has it; absent where it has none."""
        return self.env.action  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def observation_size(self) -> Any:
        """As the inner environment has it (the name in MuJoCo Playground); absent where it has none."""
        return self.env.observation_size  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def action_size(self) -> Any:
        """As the inner environment has it (the name in MuJoCo Playground); absent where it has none."""
        return self.env.action_size  # pyright: ignore[reportAttributeAccessIssue]

    def _contract_with(self, section: str, **added: Any) -> dict[str, Any]:
        """The inner environment's contract sections and this wrapper's fields, under its name, in one of them."""
        sections = dict(contract_of(self.env) or {})
        inner = sections.get(section, {})
        name, twice = type(self).__name__, sum(key.startswith(type(self).__name__) for key in inner)
        return {**sections, section: {**inner, f"{name}_{twice + 1}" if twice else name: added}}


@dataclass(frozen=True)
class EpisodeWrapper(_Wrapper):
    """Truncates episodes after `max_len` steps, and starts them at counts spread over the first half of that.

    Each reset draws the count that its episode starts from, uniformly from the integers from 0 to below
    `max_len // 2`, so that environments which were reset together do not end together. The count is kept in
    `info["step_counter"]`, int32. An end of the task in the same step goes before; truncations of the inner environment
    stay what they are.

    nnx-ppo's wrapper draws likewise, also at later resets; its `info["truncated"]` is `info["truncation"]` here.

    Raises:
        ValueError: If `max_len` is no positive integer; at a reset, if the inner environment counts by the same name.
    """

    max_len: int
    """Steps at which an episode is cut off, counted from its start count."""

    def __post_init__(self) -> None:
        """Check the limit."""
        is_int = isinstance(self.max_len, int) and not isinstance(self.max_len, bool)
        if not is_int or not 0 < self.max_len < 2**31:
            raise ValueError(f"EpisodeWrapper.max_len must be a positive integer below 2**31, got {self.max_len!r}.")

    def reset(self, key: jax.Array, /) -> Any:
        """The inner environment's reset, at a count drawn from `key`."""
        env_key, count_key = jax.random.split(key)
        state = self.env.reset(env_key)
        if COUNTER in state.info:
            raise ValueError(
                f"EpisodeWrapper: the state of {self.env!r} has an info[{COUNTER!r}] already. "
                "Wrap an environment once, with the shorter limit."
            )
        # At least one value, for `max_len` of 1: the bounds of `randint` must differ.
        count = jax.random.randint(count_key, (), 0, max(self.max_len // 2, 1), jnp.int32)
        return self._counted(state, count)

    def step(self, state: Any, action: Any, /) -> Any:
        """The inner environment's step, counted."""
        return self._counted(self.env.step(state, action), state.info[COUNTER] + 1)

    def _counted(self, state: Any, count: jax.Array) -> Any:
        done = done_of(state)
        reached = (count >= self.max_len) & ~done
        info = {**state.info, COUNTER: count, "truncation": truncation_of(state) | reached}
        return _replace(state, done=(done | reached).astype(jnp.asarray(state.done).dtype), info=info)

    def contract(self) -> dict[str, Any]:
        """The inner environment's sections; `env` with the limit."""
        return self._contract_with("env", max_len=self.max_len)


@dataclass(frozen=True)
class RewardScalingWrapper(_Wrapper):
    """Multiplies every leaf of the reward by a factor, that of the state after a reset included.

    Raises:
        ValueError: If the factor is not finite.
    """

    reward_scale: float
    """The factor."""

    def __post_init__(self) -> None:
        """Check the factor."""
        if not math.isfinite(self.reward_scale):
            raise ValueError(f"RewardScalingWrapper.reward_scale must be finite, got {self.reward_scale!r}.")

    def reset(self, key: jax.Array, /) -> Any:
        """The inner environment's reset."""
        return self._scaled(self.env.reset(key))

    def step(self, state: Any, action: Any, /) -> Any:
        """The inner environment's step."""
        return self._scaled(self.env.step(state, action))

    def _scaled(self, state: Any) -> Any:
        return _replace(state, reward=jax.tree.map(lambda reward: self.reward_scale * reward, state.reward))

    def contract(self) -> dict[str, Any]:
        """The inner environment's sections; `reward` with the factor."""
        return self._contract_with("reward", reward_scale=self.reward_scale)


def _replace(state: Any, **changes: Any) -> Any:
    """A state with other fields: by its own method `replace` (Flax's dataclasses), else as a dataclass."""
    replace = getattr(state, "replace", None)
    return dataclasses.replace(state, **changes) if replace is None else replace(**changes)
