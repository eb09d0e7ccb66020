"""The trainer's options: frozen, documented, checked when they are made, and rebuilt from plain mappings."""

import dataclasses
import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from perdure.nnx.metrics import LoggingLevel, Percentiles
from perdure.nnx.networks.factories import ACTIVATIONS

Config = TypeVar("Config")


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of PPO (arXiv:1707.06347) with GAE (arXiv:1506.02438).

    Raises:
        ValueError: If a value is out of range, or the minibatches do not divide the environments.
    """

    n_envs: int = 256
    """Environments stepped side by side."""
    rollout_length: int = 20
    """Steps of each environment per iteration; one iteration takes `n_envs * rollout_length` env-steps."""
    total_steps: int = 512_000
    """Env-steps at which training ends (the first iteration that reaches it is the last)."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator, in [0, 1]: 0 is one-step, 1 is Monte Carlo."""
    discounting_factor: float = 0.99
    """Discount per step, in [0, 1]."""
    clip_range: float = 0.2
    """How far the likelihood ratio may leave 1 before its gradient is cut."""
    learning_rate: float = 1e-4
    """Adam's step size, constant over the run."""
    normalize_advantages: bool = True
    """Whether advantages are brought to mean 0 and standard deviation 1 in each minibatch."""
    combine_advantages: bool = False
    """With several rewards: whether their advantages are summed before they reach the policy.
    Otherwise rewards and log-likelihoods must be trees of the same structure, and are paired leaf by leaf."""
    n_epochs: int = 4
    """Passes over one iteration's data."""
    n_minibatches: int = 4
    """Minibatches a pass; each holds whole rollouts of `n_envs / n_minibatches` environments."""
    critic_loss_weight: float = 1.0
    """Weight of the critic's loss (half the mean squared error) against the actor's."""
    gradient_clipping: float | None = None
    """Global norm at which gradients are clipped, or None."""
    weight_decay: float | None = None
    """AdamW's decoupled weight decay, or None for Adam; True is optax's default."""
    n_devices: int = 1
    """JAX devices over which the environments are split; see `perdure.nnx.devices`."""
    logging_level: LoggingLevel = LoggingLevel.LOSSES
    """Groups of metrics that are measured."""
    logging_percentiles: Percentiles = None
    """Percentiles that stand for an array in the metrics, 0 to 100; None for its mean and standard deviation."""

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("n_envs", "rollout_length", "total_steps", "n_epochs", "n_minibatches", "n_devices"):
            _require_positive_int("PPOConfig", name, getattr(self, name))
        for name in ("gae_lambda", "discounting_factor"):
            _require_between_0_and_1("PPOConfig", name, getattr(self, name))
        for name in ("clip_range", "learning_rate"):
            _require(getattr(self, name) > 0, f"PPOConfig.{name} must be positive, got {getattr(self, name)!r}.")
        for name in ("critic_loss_weight", "gradient_clipping", "weight_decay"):
            value = getattr(self, name)
            _require(value is None or value >= 0, f"PPOConfig.{name} must not be negative, got {value!r}.")
        _require(
            self.gradient_clipping != 0,
            "PPOConfig.gradient_clipping of 0 stops all learning; None turns it off.",
        )
        _require(
            self.n_envs % self.n_minibatches == 0,
            f"PPOConfig.n_minibatches={self.n_minibatches} does not divide n_envs={self.n_envs}: "
            f"minibatches hold whole environments. Choose a divisor of n_envs.",
        )
        _require(
            self.n_envs % (self.n_minibatches * self.n_devices) == 0,
            f"PPOConfig.n_envs={self.n_envs} cannot be dealt to n_devices={self.n_devices} with "
            f"n_minibatches={self.n_minibatches} each. Choose a multiple of {self.n_minibatches * self.n_devices}.",
        )
        _require_logging("PPOConfig", self.logging_level, self.logging_percentiles)

    @property
    def steps_per_iteration(self) -> int:
        """Env-steps that one iteration takes."""
        return self.n_envs * self.rollout_length


@dataclass(frozen=True)
class EvalConfig:
    """When and how the policy is evaluated; none of it can change the training.

    Raises:
        ValueError: If a value is out of range.
    """

    enabled: bool = True
    """Whether evaluation takes place at all."""
    every_steps: int = 50_000
    """Evaluate after the iteration in which env-steps reach or pass a multiple of this."""
    n_envs: int = 64
    """Episodes an evaluation: one, the first, of each of this many environments."""
    max_episode_length: int = 1000
    """Steps after which an episode that has not ended is cut off; its return until then counts."""
    logging_level: LoggingLevel = LoggingLevel.BASIC
    """Of no effect on what an evaluation finds: its metrics are always measured."""
    logging_percentiles: Percentiles = (0, 25, 50, 75, 100)
    """Percentiles of returns and lifespans, 0 to 100, beside their mean and standard deviation."""

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("every_steps", "n_envs", "max_episode_length"):
            _require_positive_int("EvalConfig", name, getattr(self, name))
        _require_logging("EvalConfig", self.logging_level, self.logging_percentiles)

    def fires(self, previous_steps: int, steps: int) -> bool:
        """Whether to evaluate after an iteration that led from `previous_steps` to `steps` env-steps."""
        return self.enabled and crosses_multiple(self.every_steps, previous_steps, steps)


@dataclass(frozen=True)
class VideoConfig:
    """When and how an episode is filmed; none of it can change the training.

    Raises:
        ValueError: If a value is out of range.
    """

    enabled: bool = False
    """Whether videos are made at all; they need a `video_fn` and an environment with a method `render`."""
    every_steps: int = 200_000
    """Film after the iteration in which env-steps reach or pass a multiple of this."""
    episode_length: int = 1000
    """Steps that are filmed; an episode that ends before is followed by the next."""
    render_kwargs: dict[str, Any] = field(default_factory=lambda: {"height": 480, "width": 640})
    """Keywords for the environment's `render`."""

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("every_steps", "episode_length"):
            _require_positive_int("VideoConfig", name, getattr(self, name))

    def fires(self, previous_steps: int, steps: int) -> bool:
        """Whether to film after an iteration that led from `previous_steps` to `steps` env-steps."""
        return self.enabled and crosses_multiple(self.every_steps, previous_steps, steps)


def crosses_multiple(every_steps: int, previous_steps: int, steps: int) -> bool:
    """Whether a multiple of `every_steps` lies in (previous_steps, steps].

    A pure function of the two counts: a resumed run has nothing to remember, and repeats nothing.
    """
    return steps // every_steps > previous_steps // every_steps


@dataclass(frozen=True)
class NetworkConfig:
    """What `launch_ppo` passes to `make_mlp_actor_critic`.

    Raises:
        ValueError: If a value is out of range.
    """

    actor_hidden_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the actor."""
    critic_hidden_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the critic."""
    activation: str = "relu"
    """`relu`, `tanh`, `swish`, `elu` or `gelu`."""
    normalize_obs: bool = True
    """Whether observations are brought to mean 0 and variance 1 by running statistics."""
    initializer_scale: float = 1.0
    """Scale of the initial kernels' variance."""
    entropy_weight: float = 1e-2
    """Weight of the entropy bonus."""
    min_std: float = 1e-1
    """Continuous actions: added to the standard deviation before scaling."""
    std_scale: float = 1.0
    """Continuous actions: factor of the standard deviation."""

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("actor_hidden_sizes", "critic_hidden_sizes"):
            sizes = getattr(self, name)
            _require(
                all(isinstance(size, int) and size > 0 for size in sizes),
                f"NetworkConfig.{name} must hold positive integers, got {sizes!r}.",
            )
        _require(
            self.activation in ACTIVATIONS,
            f"unknown activation {self.activation!r}; expected one of {', '.join(ACTIVATIONS)}.",
        )
        for name in ("initializer_scale", "entropy_weight", "min_std", "std_scale"):
            value = getattr(self, name)
            _require(value >= 0, f"NetworkConfig.{name} must not be negative, got {value!r}.")


@dataclass(frozen=True)
class TrainConfig:
    """Everything `train_ppo` reads.

    Raises:
        ValueError: If a value is out of range.
    """

    ppo: PPOConfig = field(default_factory=PPOConfig)
    """The algorithm."""
    eval: EvalConfig = field(default_factory=EvalConfig)
    """Evaluation."""
    video: VideoConfig = field(default_factory=VideoConfig)
    """Videos."""
    seed: int = 17
    """Seeds the environments, the sampling, the minibatches and (apart from them) evaluations and videos."""
    checkpoint_every_steps: int = 500_000
    """Env-steps between checkpoints, where `train_ppo` is given a run directory or a `checkpoint_fn`."""

    def __post_init__(self) -> None:
        """Check every field."""
        _require_positive_int("TrainConfig", "checkpoint_every_steps", self.checkpoint_every_steps)
        _require(
            isinstance(self.seed, int) and 0 <= self.seed < 2**32,
            f"TrainConfig.seed must be an integer in [0, 2**32), got {self.seed!r}.",
        )


def with_overrides(config: TrainConfig, *, total_steps: int | None, seed: int | None) -> TrainConfig:
    """The same configuration with another horizon or seed, where one is given."""
    if total_steps is not None:
        config = dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, total_steps=total_steps))
    return config if seed is None else dataclasses.replace(config, seed=seed)


def to_mapping(config: Any) -> dict[str, Any]:
    """A configuration as plain values, nested by name: what `from_mapping` reads, also after a journey through JSON."""
    return {entry.name: _to_plain(getattr(config, entry.name)) for entry in dataclasses.fields(config)}


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, LoggingLevel):
        return "|".join(str(level.name) for level in value)
    return list(value) if isinstance(value, tuple) else value


def from_mapping(kind: type[Config], mapping: Mapping[str, Any]) -> Config:
    """The dataclass `kind` rebuilt from `to_mapping` of one.

    A field that is missing takes its default: each new field's default does what versions without it did.

    Args:
        kind: A dataclass whose fields are numbers, strings, tuples, mappings, flags or dataclasses of the same sort.
        mapping: Its fields by name; nested dataclasses as nested mappings, tuples perhaps as lists.

    Raises:
        ValueError: If a field is unknown (all of them are named), or a value is refused.
    """
    names = {entry.name for entry in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    _require(
        set(mapping) <= names,
        f"{kind.__name__}: unknown {sorted(set(mapping) - names)}; it has {sorted(names)}. "
        f"The record was written by another version of perdure.",
    )
    hints = get_type_hints(kind)
    return kind(**{name: _from_plain(hints[name], value) for name, value in mapping.items()})


def _from_plain(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_mapping(hint, value)
    if hint is LoggingLevel:
        levels = [LoggingLevel[name] for name in value.split("|") if name]
        return functools.reduce(operator.or_, levels, LoggingLevel.NONE)
    return tuple(value) if isinstance(value, list) else value


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _require_positive_int(owner: str, name: str, value: Any) -> None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    _require(is_int and value > 0, f"{owner}.{name} must be a positive integer, got {value!r}.")


def _require_between_0_and_1(owner: str, name: str, value: float) -> None:
    _require(0.0 <= value <= 1.0, f"{owner}.{name} must lie in [0, 1], got {value!r}.")


def _require_logging(owner: str, level: Any, percentiles: Any) -> None:
    _require(isinstance(level, LoggingLevel), f"{owner}.logging_level must be a LoggingLevel, got {level!r}.")
    is_list = percentiles is None or (
        isinstance(percentiles, tuple) and all(isinstance(p, int) and 0 <= p <= 100 for p in percentiles)
    )
    _require(
        is_list, f"{owner}.logging_percentiles must be a tuple of integers from 0 to 100 or None, got {percentiles!r}."
    )
