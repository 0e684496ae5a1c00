"""Initial values of known layers: those of one linear map P → H·D, held as (H, P, D)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.init import uniform_

from ..theta_parts import glorot_of_heads


def as_glorot(module: Any, maps: int = 1) -> None:
    """A Glorot-uniform weight, as PyG's GAT draws it, or one of ``maps`` weights drawn as one."""
    glorot_of_heads(module.weight, maps)


def as_glorot_and_bias(module: Any) -> None:
    """A Glorot-uniform weight, and the bias of a linear map, as PyG's GATv2 draws them."""
    glorot_of_heads(module.weight)
    linear_bias(module.bias, module.weight.size(1))


def as_linear(module: Any) -> None:
    """A weight and its bias, as PyG's TransformerConv draws them."""
    _linear(module.weight)
    linear_bias(getattr(module, "bias", None), module.weight.size(1))


def as_values(theta: Any, maps: int = 1) -> None:
    """Values and the output projection of torch's MultiheadAttention."""
    glorot_of_heads(theta.value, maps)
    _linear(theta.output.flatten(0, 1).unsqueeze(0))


# torch draws the weights of queries, keys and values as one where they have the same channels.
as_packed = partial(as_glorot, maps=3)
as_packed_values = partial(as_values, maps=3)


def linear_bias(bias: Tensor | None, fan_in: int) -> None:
    """The bias of a linear map from ``fan_in`` channels, uniform in ±1/√fan_in."""
    if bias is not None:
        bound = 1.0 / math.sqrt(max(fan_in, 1))
        uniform_(bias, -bound, bound)


def _linear(weight: Tensor) -> None:
    linear_bias(weight, weight.size(1))
