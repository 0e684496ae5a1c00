"""Weights of another library's layers, copied to those of heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def copy_weight(parameter: Any, value: Tensor, like: Tensor) -> None:
    """Give a parameter a value; it is learned if ``like``, which the value comes from, is."""
    with torch.no_grad():
        parameter.copy_(value)
    parameter.requires_grad_(like.requires_grad)


def copy_to_heads(parameter: Any, weight: Tensor) -> None:
    """Give (H, P, D) the weight (H·D, P) of one linear map to all heads."""
    value = weight.t().unflatten(1, (parameter.size(0), -1)).transpose(0, 1)
    copy_weight(parameter, value, weight)
