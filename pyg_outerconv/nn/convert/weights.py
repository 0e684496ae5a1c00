"""Copy weights of other libraries' layers to weights of heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def copy_weight(parameter: Any, value: Tensor, like: Tensor) -> None:
    """Copy a value to a parameter, with the ``requires_grad`` of ``like``."""
    with torch.no_grad():
        parameter.copy_(value)
    parameter.requires_grad_(like.requires_grad)


def copy_to_heads(parameter: Any, weight: Tensor) -> None:
    """Copy the weight (H·D, P) of one linear map for all heads to a parameter (H, P, D)."""
    value = weight.t().unflatten(1, (parameter.size(0), -1)).transpose(0, 1)
    copy_weight(parameter, value, weight)
