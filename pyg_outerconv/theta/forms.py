"""What is taken for Θ: a tensor, or one of the forms that are not."""

from __future__ import annotations

from typing import Union

from torch import Tensor

from .dense_theta import DenseTheta
from .theta import Theta

# Spelled as PyG, which reads the types of the layer, can read it.
ThetaValue = Union[Tensor, Theta]  # noqa: UP007
"""Θ (K, G, P/G, Q/G): a tensor, a mixture, or values and outputs of heads."""


def as_theta(theta: ThetaValue) -> Theta:
    """Θ with the methods that every form of it has."""
    return DenseTheta(theta) if isinstance(theta, Tensor) else theta


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor."""
    return theta if isinstance(theta, Tensor) else theta.full()


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number; of a tensor a tensor."""
    made = as_theta(theta).scaled(factor)
    return made.full() if isinstance(theta, Tensor) else made
