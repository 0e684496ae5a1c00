"""How the parameters of known layers begin: as those of the linear maps that heads are cut from.

Each function gives values to a module with weights (H, P, D), which are one map from P to H·D.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.nn.init import uniform_


def glorot(weight: Tensor, maps: int = 1) -> None:
    """Glorot-uniform, the map being one of several that are drawn together."""
    heads, fan_in, channels = weight.shape
    fan_out = heads * channels * maps
    bound = math.sqrt(6.0 / max(fan_in + fan_out, 1))
    uniform_(weight, -bound, bound)


def linear(weight: Tensor, bias: Tensor | None = None) -> None:
    """As torch's and PyG's ``Linear``: uniform up to 1/√P, weights and bias."""
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
    """The same where keys and values have other channels than queries, and are drawn apart."""
    glorot(theta.value)
    linear(theta.output.flatten(0, 1).unsqueeze(0))


def as_glorot_and_bias(module: Any) -> None:
    """One weight of all heads, and its bias, as PyG's GATv2 draws them."""
    glorot(module.weight)
    linear_bias(module.bias, module.weight.size(1))


def linear_bias(bias: Tensor | None, fan_in: int) -> None:
    """The bias of a linear map from so many channels, if there is one."""
    if bias is not None:
        bound = 1.0 / math.sqrt(max(fan_in, 1))
        uniform_(bias, -bound, bound)
