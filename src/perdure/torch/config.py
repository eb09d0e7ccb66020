"""The options of PPO: frozen, documented, checked when they are made."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from perdure import UsageError

Vectorization = Literal["sync", "async"]
Autoreset = Literal["same-step", "next-step", "disabled"]
Wrappers = Literal["none", "normalize", "atari"]


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of PPO (arXiv:1707.06347) with GAE (arXiv:1506.02438).

    Raises:
        UsageError: a value is out of range, or the minibatches do not divide what is collected.
    """

    total_timesteps: int = 500_000
    """Env-steps at which training ends (the first update that reaches it is the last)."""
    seed: int = 1
    """Seeds the networks, the environments, the actions, the minibatches and (apart from them) the evaluations."""
    n_envs: int = 4
    """Environments stepped side by side."""
    n_steps: int = 128
    """Steps of each environment between updates; an update takes `n_envs * n_steps` env-steps."""
    n_epochs: int = 4
    """Passes over one update's data."""
    n_minibatches: int = 4
    """Minibatches a pass: of steps in any order; with an LSTM, of whole environments."""
    learning_rate: float = 2.5e-4
    """Adam's step size."""
    anneal_lr: bool = True
    """Whether the step size falls in a straight line, to 0 at `total_timesteps`."""
    gamma: float = 0.99
    """Discount per step, in [0, 1]."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator, in [0, 1]: 0 is one-step, 1 is Monte Carlo."""
    normalize_advantages: bool = True
    """Whether advantages are brought to mean 0 and standard deviation 1 in each minibatch."""
    clip_range: float = 0.2
    """How far the likelihood ratio may leave 1 before its gradient is cut."""
    clip_range_value: float | None = None
    """How far the critic may move away from its old estimate before its gradient is cut; None: as far as it likes."""
    entropy_weight: float = 0.01
    """Weight of the entropy bonus."""
    value_weight: float = 0.5
    """Weight of the critic's mean squared error against the actor's loss."""
    max_grad_norm: float | None = 0.5
    """Global norm at which gradients are clipped; None: never."""
    target_kl: float | None = None
    """An update ends early where a minibatch finds more than 1.5 times this divergence; None: never."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Dense layers of the actor and of the critic, or before the LSTM; images pass through a CNN instead."""
    lstm_size: int | None = None
    """Size of an LSTM that actor and critic share; None: no memory."""
    mask_actions: bool = True
    """Whether `info["action_mask"]` is obeyed, where the environments give one."""
    vectorization: Vectorization = "sync"
    """Whether environments that are made here step in this process, or each in its own."""
    autoreset: Autoreset = "same-step"
    """When environments that are made here begin the next episode; `disabled`: when the trainer resets them."""
    wrappers: Wrappers = "none"
    """What is put around environments that are made by their id: nothing; running statistics of observations and
    rewards; or Atari's preprocessing, clipped rewards and four stacked frames."""
    eval_every_steps: int | None = None
    """Evaluate after the update that reaches or passes a multiple of this; None: never."""
    eval_episodes: int = 10
    """Episodes an evaluation, played side by side with the most likely actions."""
    eval_max_length: int = 27_000
    """Steps after which an episode of an evaluation is cut off; its return until then counts."""
    n_threads: int | None = 1
    """PyTorch's threads while it trains, on which results depend; None: as they are."""
    device: str = "cpu"
    """Where the networks are."""

    def __post_init__(self) -> None:
        """Checks every field."""
        counts = ["total_timesteps", "n_envs", "n_steps", "n_epochs", "n_minibatches"]
        counts += ["eval_episodes", "eval_max_length"]
        optional = [name for name in ("lstm_size", "eval_every_steps", "n_threads") if getattr(self, name) is not None]
        for name in counts + optional:
            _require(_is_count(getattr(self, name)), name, getattr(self, name), "a positive integer")
        for size in self.hidden_sizes:
            _require(_is_count(size), "hidden_sizes", self.hidden_sizes, "positive integers")
        for name in ("gamma", "gae_lambda"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a number in [0, 1]")
        for name in ("learning_rate", "clip_range", "clip_range_value", "max_grad_norm", "target_kl"):
            value = getattr(self, name)
            is_none = value is None and name not in ("learning_rate", "clip_range")
            _require(is_none or (value is not None and 0 < value < math.inf), name, value, "a positive number")
        for name in ("entropy_weight", "value_weight"):
            _require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a number from 0")
        for name, kind in (("vectorization", Vectorization), ("autoreset", Autoreset), ("wrappers", Wrappers)):
            _require(getattr(self, name) in get_args(kind), name, getattr(self, name), f"one of {get_args(kind)}")
        _require(isinstance(self.seed, int) and 0 <= self.seed < 2**31, "seed", self.seed, "an integer in [0, 2**31)")
        self._check_division()

    def _check_division(self) -> None:
        parts, what = self.n_minibatches, f"n_envs * n_steps = {self.steps_per_update}"
        whole = self.steps_per_update
        if self.lstm_size is not None:
            whole, what = self.n_envs, f"n_envs = {self.n_envs}: with an LSTM, minibatches hold whole environments"
        _require(whole % parts == 0, "n_minibatches", parts, f"a divisor of {what}")
        if self.total_timesteps < self.steps_per_update:
            raise UsageError(
                f"PPOConfig.total_timesteps={self.total_timesteps} is less than one update takes: n_envs * n_steps = "
                f"{self.steps_per_update}. Train for longer, or collect less."
            )

    @property
    def steps_per_update(self) -> int:
        """Env-steps that one update takes."""
        return self.n_envs * self.n_steps


def to_mapping(config: PPOConfig) -> dict[str, Any]:
    """The options as plain values, by name: what `from_mapping` reads, also after a journey through JSON."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_mapping(mapping: Mapping[str, Any]) -> PPOConfig:
    """The options rebuilt; a field that is missing takes its default.

    Raises:
        UsageError: a field is unknown, or a value is refused.
    """
    unknown = sorted(mapping.keys() - {field.name for field in dataclasses.fields(PPOConfig)})
    if unknown:
        raise UsageError(f"PPOConfig: unknown {unknown}. The record was written by another version of perdure.")
    values: dict[str, Any] = {
        name: tuple(found) if isinstance(found, list) else found for name, found in mapping.items()
    }
    return PPOConfig(**values)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _require(condition: object, name: str, value: Any, wanted: str) -> None:
    if not condition:
        raise UsageError(f"PPOConfig.{name}={value!r}: {wanted}.")
