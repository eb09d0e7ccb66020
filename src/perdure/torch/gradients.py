"""Gradients of many parameters in one tensor: to measure and clip them is one operation each."""

import math
from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor, nn


class FlatGradients:
    """While it is entered, the gradients of parameters are views of one tensor; afterwards there are none."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Of parameters of one dtype on one device."""
        self._parameters = list(parameters)
        self._all = torch.zeros_like(torch.cat([parameter.detach().flatten() for parameter in self._parameters]))

    def __enter__(self) -> Self:
        """Puts the views in place."""
        sizes = [parameter.numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, self._all.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        return self

    def __exit__(self, *_: object) -> None:
        """Takes them away."""
        for parameter in self._parameters:
            parameter.grad = None

    def derive(self, said: Sequence[Tensor], derivatives: Sequence[Tensor]) -> None:
        """The gradients of a loss, of which the derivatives by what was said are given."""
        found = torch.autograd.grad(said, self._parameters, derivatives)
        torch.cat([gradient.flatten() for gradient in found], out=self._all)

    def clip(self, limit: float | None) -> float:
        """Brings the global norm down to the limit, if it is above; returns what it was. Not if that is infinite."""
        return clip_norm(self._all, limit)


def clip_norm(gradient: Tensor, limit: float | None) -> float:
    """Brings the norm of a flat gradient down to the limit, in place; returns what it was. Not if that is infinite."""
    norm = float(torch.linalg.vector_norm(gradient))
    if limit is not None and limit < norm < math.inf:
        gradient.mul_(limit / (norm + 1e-6))
    return norm
