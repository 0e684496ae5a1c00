"""Initial values of known layers: those of one linear map P → H·D for all heads.

Each function initialises a module with weights (H, P, D).
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.nn.init import uniform_


def glorot(weight: Tensor, maps: int = 1) -> None:
    """Glorot-uniform values of a map P → H·D, or of one of ``maps`` maps drawn as one."""
    heads, fan_in, channels = weight.shape
    fan_out = heads * channels * maps
    bound = math.sqrt(6.0 / max(fan_in + fan_out, 1))
    uniform_(weight, -bound, bound)


def linear(weight: Tensor, bias: Tensor | None = None) -> None:
    """As torch's and PyG's ``Linear``: weights and bias uniform in ±1/√P."""
    bound = 1.0 / math.sqrt(max(weight.size(1), 1))
    uniform_(weight, -bound, bound)
    linear_bias(bias, weight.size(1))


def as_glorot(module: Any) -> None:
    """One weight of all heads, as PyG's GAT draws it."""
    glorot(module.weight)


def as_linear(module: Any) -> None:
    """One weight of all heads and its bias, as PyG's TransformerConv draws them."""
    linear(module.weight, getattr(module, "bias", None))


def as_packed(projection: Any) -> None:
    """Keys and queries of torch's MultiheadAttention, which draws them together with values."""
    glorot(projection.weight, maps=3)


def as_packed_values(theta: Any) -> None:
    """Values and the output projection of torch's MultiheadAttention."""
    glorot(theta.value, maps=3)
    linear(theta.output.flatten(0, 1).unsqueeze(0))


def as_separate_values(theta: Any) -> None:
    """As :func:`as_packed_values`, if keys and values have other channels than queries."""
    glorot(theta.value)
    linear(theta.output.flatten(0, 1).unsqueeze(0))


def as_glorot_and_bias(module: Any) -> None:
    """One weight of all heads, and its bias, as PyG's GATv2 draws them."""
    glorot(module.weight)
    linear_bias(module.bias, module.weight.size(1))


def linear_bias(bias: Tensor | None, fan_in: int) -> None:
    """The bias of a linear map from ``fan_in`` channels, if it has one."""
    if bias is not None:
        bound = 1.0 / math.sqrt(max(fan_in, 1))
        uniform_(bias, -bound, bound)
