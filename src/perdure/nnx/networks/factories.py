"""Ready-made networks."""

import itertools
from collections.abc import Sequence
from typing import Literal

from flax import nnx

from perdure.nnx.networks.containers import PPOAdapter, Sequential
from perdure.nnx.networks.layers import Activation, Dense, Initializer, default_kernel_init
from perdure.nnx.networks.normalizer import Normalizer
from perdure.nnx.networks.samplers import CategoricalSampler, NormalTanhSampler, Sampler
from perdure.nnx.networks.types import StatefulModule

ActionKind = Literal["continuous", "discrete"]

ACTIVATIONS: dict[str, Activation] = {
    "relu": nnx.relu,
    "tanh": nnx.tanh,
    "swish": nnx.swish,
    "elu": nnx.elu,
    "gelu": nnx.gelu,
}


def make_mlp_layers(
    sizes: Sequence[int],
    rngs: nnx.Rngs,
    *,
    activation: Activation = nnx.relu,
    activation_last_layer: bool = True,
    kernel_init: Initializer = default_kernel_init,
) -> list[Dense]:
    """Dense layers from `sizes[0]` inputs over the sizes between to `sizes[-1]` outputs.

    Args:
        sizes: At least two.
        rngs: Seeds the kernels.
        activation: Follows each layer.
        activation_last_layer: Whether it follows the last one too.
        kernel_init: Draws each kernel.

    Raises:
        ValueError: If there are fewer than two sizes, or one is not positive.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"an MLP needs at least an input and an output size, all positive; got {list(sizes)}.")
    last = len(sizes) - 2
    return [
        Dense(
            n_in,
            n_out,
            rngs,
            activation=activation if index < last or activation_last_layer else None,
            kernel_init=kernel_init,
        )
        for index, (n_in, n_out) in enumerate(itertools.pairwise(sizes))
    ]


def make_mlp(
    sizes: Sequence[int],
    rngs: nnx.Rngs,
    *,
    activation: Activation = nnx.relu,
    activation_last_layer: bool = True,
    kernel_init: Initializer = default_kernel_init,
) -> Sequential:
    """The layers of `make_mlp_layers` as one module."""
    return Sequential(
        make_mlp_layers(
            sizes,
            rngs,
            activation=activation,
            activation_last_layer=activation_last_layer,
            kernel_init=kernel_init,
        )
    )


def make_mlp_actor_critic(
    obs_size: int,
    action_size: int,
    actor_hidden_sizes: Sequence[int],
    critic_hidden_sizes: Sequence[int],
    rngs: nnx.Rngs,
    activation: Activation | str = nnx.relu,
    normalize_obs: bool = True,  # noqa: FBT001, FBT002 - the known signature
    initializer_scale: float = 1.0,
    entropy_weight: float = 1e-2,
    min_std: float = 1e-1,
    std_scale: float = 1.0,
    *,
    action_kind: ActionKind = "continuous",
) -> StatefulModule:
    """An actor and a critic of dense layers that share nothing but the normaliser.

    Args:
        obs_size: Size of a (flat) observation.
        action_size: Dimensions of a continuous action, or number of discrete ones.
        actor_hidden_sizes: Hidden layers of the actor.
        critic_hidden_sizes: Hidden layers of the critic.
        rngs: Seeds the kernels (`params`) and the action sampler (`action`).
        activation: A function, or one of `relu`, `tanh`, `swish`, `elu`, `gelu`.
        normalize_obs: Whether a `Normalizer` comes first.
        initializer_scale: Scale of the kernels' variance: uniform with variance `scale / fan_in`.
        entropy_weight: Weight of the entropy bonus.
        min_std: See `NormalTanhSampler`; discrete actions have no use for it.
        std_scale: See `NormalTanhSampler`; discrete actions have no use for it.
        action_kind: Which sampler ends the actor.

    Raises:
        ValueError: If a size is not positive, or the activation or action kind is unknown.
    """
    act = _activation(activation)
    init = nnx.initializers.variance_scaling(initializer_scale, "fan_in", "uniform")
    sampler, outputs = _head(
        action_kind, action_size, rngs, entropy_weight=entropy_weight, min_std=min_std, std_scale=std_scale
    )
    actor = make_mlp_layers(
        [obs_size, *actor_hidden_sizes, outputs],
        rngs,
        activation=act,
        activation_last_layer=False,
        kernel_init=init,
    )
    critic = make_mlp(
        [obs_size, *critic_hidden_sizes, 1],
        rngs,
        activation=act,
        activation_last_layer=False,
        kernel_init=init,
    )
    adapter = PPOAdapter(action=Sequential([*actor, sampler]), value=critic)
    return Sequential([Normalizer(obs_size), adapter]) if normalize_obs else adapter


def _activation(activation: Activation | str) -> Activation:
    if not isinstance(activation, str):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; expected a function or one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[activation]


def _head(
    kind: ActionKind,
    action_size: int,
    rngs: nnx.Rngs,
    *,
    entropy_weight: float,
    min_std: float,
    std_scale: float,
) -> tuple[Sampler, int]:
    """The sampler, and how many numbers it needs per action."""
    if kind == "discrete":
        return CategoricalSampler(rngs, entropy_weight=entropy_weight), action_size
    if kind == "continuous":
        sampler = NormalTanhSampler(rngs, entropy_weight=entropy_weight, min_std=min_std, std_scale=std_scale)
        return sampler, 2 * action_size
    raise ValueError(f"unknown action kind {kind!r}; expected 'continuous' or 'discrete'.")
