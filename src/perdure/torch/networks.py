"""The actor and the critic: dense layers apart, or upon common features of images or of a memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from perdure.torch.stock import is_stock, is_stock_linear

Layer = TypeVar("Layer", bound=nn.Module)

Carry = tuple[Tensor, Tensor]
"""An LSTM's hidden and cell state, shape (n_envs, size) each."""

IMAGE_FEATURES = 512


class ActorCritic(nn.Module):
    """Policy and value of observations.

    Without common features, actor and critic share nothing. Weights are orthogonal, biases zero, and the last layers
    scaled by 0.01 and 1 (arXiv:2005.12729).
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        n_outputs: int,
        *,
        hidden_sizes: Sequence[int],
        lstm_size: int | None,
        has_scale: bool,
        is_image: bool,
    ) -> None:
        """Draws the weights from PyTorch's generator.

        Args:
            observation_shape: of one observation; images are (channels, height, width).
            n_outputs: of the policy.
            hidden_sizes: of dense layers; images come without.
            lstm_size: of an LSTM cell; None: no memory.
            has_scale: whether there is a `log_std` to learn.
            is_image: whether observations are images of 0 to 255, which a small CNN looks at (Mnih et al., 2015).
        """
        super().__init__()
        size, self.is_image = math.prod(observation_shape), is_image
        self.features, self.memory, layers = None, None, list(hidden_sizes)
        if is_image:
            self.features, size, layers = image_features(observation_shape), IMAGE_FEATURES, []
        elif lstm_size is not None:
            self.features, size, layers = Dense([size, *hidden_sizes], ends_active=True), [size, *hidden_sizes][-1], []
        if lstm_size is not None:
            self.memory, size = _orthogonal(nn.LSTMCell(size, lstm_size), 1.0), lstm_size
        self.policy = Dense([size, *layers, n_outputs], last_scale=0.01)
        self.value = Dense([size, *layers, 1], last_scale=1.0)
        self.log_std = nn.Parameter(torch.zeros(n_outputs)) if has_scale else None

    def encode(self, observations: Tensor) -> Tensor:
        """Features of observations, shape (batch, features): what stands before memory, policy and value."""
        if self.is_image:
            observations = observations.float().mul_(1 / 255)
        elif observations.ndim > 2:
            observations = observations.flatten(1)
        observations = observations.to(next(self.parameters()).dtype)
        return observations if self.features is None else self.features(observations)

    def remember(self, features: Tensor, carry: Carry, starts: Tensor) -> Carry:
        """One step of the memory, which is empty where an episode starts (bool, shape (n_envs,))."""
        if self.memory is None:
            raise TypeError("these networks have no memory: lstm_size is None.")
        keep = (~starts).to(features.dtype).unsqueeze(1)
        return self.memory(features, (carry[0] * keep, carry[1] * keep))

    def recall(self, features: Tensor, carry: Carry, starts: Tensor) -> Tensor:
        """Many steps of the memory: features (time, n_envs, …) and starts (time, n_envs) to (time, n_envs, size)."""
        hidden = []
        for feature, start in zip(features, starts, strict=True):
            carry = self.remember(feature, carry, start)
            hidden.append(carry[0])
        return torch.stack(hidden)

    def empty_carry(self, n_envs: int) -> Carry | None:
        """Where an episode starts; None without a memory."""
        if self.memory is None:
            return None
        zeros = torch.zeros(n_envs, self.memory.hidden_size, device=self.memory.weight_hh.device)
        return zeros, zeros.clone()


class Dense(nn.Module):
    """Linear layers with tanh in between."""

    def __init__(self, sizes: Sequence[int], *, last_scale: float = math.sqrt(2), ends_active: bool = False) -> None:
        """Layers of these sizes, the first that of the input; `ends_active`: tanh behind the last one too."""
        super().__init__()
        scales = [math.sqrt(2)] * (len(sizes) - 2) + [last_scale]
        pairs = zip(sizes, sizes[1:], scales, strict=False)
        self.layers = nn.ModuleList(_orthogonal(nn.Linear(inputs, outputs), scale) for inputs, outputs, scale in pairs)
        self.n_active = len(sizes) - 1 if ends_active else len(sizes) - 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (…, sizes[0]) to (…, sizes[-1])."""
        values, is_stock = inputs, self.is_stock()
        for number, layer in enumerate(self.layers):
            values = layer(values)
            if number < self.n_active:
                values = _tanh(values) if is_stock else values.tanh()  # others may keep or pass on what they were given
        return values

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """The same function while the parameters do not change: without a graph, twice as fast for small inputs.

        Layers that are not stock ones do what they do.
        """
        if not self.is_stock():
            return self
        layers = [(layer.bias.detach(), layer.weight.detach().t().contiguous()) for layer in self.linear()]
        active, last = layers[: self.n_active], layers[self.n_active :]

        def apply(inputs: Tensor) -> Tensor:
            values = inputs
            for bias, weight in active:
                values = _tanh(torch.addmm(bias, values, weight))
            for bias, weight in last:
                values = torch.addmm(bias, values, weight)
            return values

        return apply

    def is_stock(self) -> bool:
        """Whether nothing but linear layers of 32-bit floats with tanh in between is computed."""
        is_list = is_stock(self.layers, nn.ModuleList)
        return is_stock(self, Dense) and is_list and all(map(is_stock_linear, self.layers))

    def linear(self) -> Iterator[nn.Linear]:
        """The linear layers."""
        return (layer for layer in self.layers if isinstance(layer, nn.Linear))


def _tanh(values: Tensor) -> Tensor:
    """In place; where no graph wants to know, by NumPy, which takes a fifth of the time on the processor."""
    if values.requires_grad or values.device.type != "cpu" or values.dtype != torch.float32:
        return values.tanh_()  # NumPy knows no bfloat16
    np.tanh(values.numpy(), out=values.numpy())
    return values


def image_features(shape: Sequence[int]) -> nn.Sequential:
    """Three convolutions and a dense layer, for images of at least 36 × 36."""
    convolutions = nn.Sequential(
        _orthogonal(nn.Conv2d(shape[0], 32, 8, stride=4), math.sqrt(2)),
        nn.ReLU(),
        _orthogonal(nn.Conv2d(32, 64, 4, stride=2), math.sqrt(2)),
        nn.ReLU(),
        _orthogonal(nn.Conv2d(64, 64, 3, stride=1), math.sqrt(2)),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        size = convolutions(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*convolutions, _orthogonal(nn.Linear(size, IMAGE_FEATURES), math.sqrt(2)), nn.ReLU())


def _orthogonal(layer: Layer, scale: float) -> Layer:
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.orthogonal_(parameter, scale)
    return layer


def to_numpy(carry: Carry) -> tuple[np.ndarray, np.ndarray]:
    """As it is kept between rollouts."""
    return carry[0].cpu().numpy().copy(), carry[1].cpu().numpy().copy()


def to_tensors(memory: tuple[np.ndarray, np.ndarray], device: str) -> Carry:
    """As the memory takes it."""
    return torch.from_numpy(memory[0]).to(device), torch.from_numpy(memory[1]).to(device)
