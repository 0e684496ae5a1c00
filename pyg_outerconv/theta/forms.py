"""Θ as callers pass it: a tensor, or one of the classes of Θ."""

from __future__ import annotations

from typing import Union

from torch import Tensor

from .dense_theta import DenseTheta
from .theta import Theta

# PyG parses the type hints of layers, and can parse this spelling.
ThetaValue = Union[Tensor, Theta]  # noqa: UP007
"""Θ (K, G, P/G, Q/G): a tensor, a mixture, or values and outputs of heads."""


def as_theta(theta: ThetaValue) -> Theta:
    """Θ as an object of :class:`Theta`; a tensor becomes a :class:`DenseTheta`."""
    return DenseTheta(theta) if isinstance(theta, Tensor) else theta


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor (K, G, P/G, Q/G)."""
    return theta if isinstance(theta, Tensor) else theta.full()


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number; a tensor if ``theta`` is a tensor."""
    product = as_theta(theta).scaled(factor)
    return product.full() if isinstance(theta, Tensor) else product
