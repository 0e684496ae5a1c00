"""Autocast, for products that torch does not know as such."""

from __future__ import annotations

import torch
from torch import Tensor


def autocast_pair(value: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Both in autocast's type where it is on and takes them, as a dense product would take them."""
    kind = value.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (value.dtype, theta.dtype):
        dtype = torch.get_autocast_dtype(kind)
        return value.to(dtype), theta.to(dtype)
    return value, theta
