"""Autocast for products that are not torch operators of their own."""

from __future__ import annotations

import torch
from torch import Tensor


def autocast_pair(value: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands in the dtype of autocast, as for a dense product; float64 is not converted."""
    kind = value.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (value.dtype, theta.dtype):
        dtype = torch.get_autocast_dtype(kind)
        return value.to(dtype), theta.to(dtype)
    return value, theta
