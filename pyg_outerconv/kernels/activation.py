"""The activations of additive scores, with their derivatives of every order."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS = ("leaky_relu", "tanh", "exp", "square")


class Activation(NamedTuple):
    """The derivative of order n of an elementwise function phi; order 0 is phi itself.

    Attributes:
        name: the name of phi, one of ``ACTIVATIONS``.
        slope: the factor of numbers below zero in 'leaky_relu'.
        order: n.
    """

    name: str
    slope: float
    order: int

    @property
    def vanishes(self) -> bool:
        """Whether this derivative is zero everywhere."""
        return self.order > {"leaky_relu": 1, "square": 2}.get(self.name, self.order)

    def after(self, orders: int) -> Activation:
        """The derivative of order n + ``orders``."""
        return self._replace(order=self.order + orders)

    def write(self, z: Tensor, out: Tensor) -> Tensor:
        """Apply it elementwise to ``z`` and write the result to ``out``, which may be ``z``."""
        if self.vanishes:
            return out.zero_()
        if self.name == "exp":
            return torch.exp(z, out=out)
        if self.name == "square":
            return (
                out.fill_(2.0) if self.order == 2 else torch.mul(z, 2 if self.order else z, out=out)
            )
        if self.name == "tanh":
            torch.tanh(z, out=out)
            return out if self.order == 0 else _horner(out, of_tanh(self.order))
        if self.order == 0:
            return F.leaky_relu_(out if out is z else out.copy_(z), self.slope)
        # A comparison and two operations on its result take twice as long.
        one = z.new_ones(()).expand_as(z)
        torch.ops.aten.leaky_relu_backward.grad_input(one, z, self.slope, False, grad_input=out)
        return out


@cache
def of_tanh(order: int) -> tuple[int, ...]:
    """Coefficients of the derivative of tanh of that order, as a polynomial p_n of t = tanh.

    ``p_0(t) = t`` and ``p_{n + 1}(t) = p_n'(t) (1 - t^2)``; the constant comes first.
    """
    if order == 0:
        return (0, 1)
    slope = [power * factor for power, factor in enumerate(of_tanh(order - 1))][1:]
    out = [*slope, 0, 0]
    for power, factor in enumerate(slope):
        out[power + 2] -= factor
    return tuple(out)


def _horner(t: Tensor, coefficients: tuple[int, ...]) -> Tensor:
    """Evaluate a polynomial at ``t`` elementwise, and write the result over ``t``."""
    x, (*lower, highest) = t.clone(), coefficients
    t.fill_(highest)
    for coefficient in reversed(lower):
        t.mul_(x).add_(coefficient)
    return t
