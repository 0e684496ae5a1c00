"""Inverse counts of integers, and gathers, by numpy, which is faster on small graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .index_checks import can_read

SHORT = 2**15
"""Up to so many numbers are copied and gathered by numpy, in one thread."""


def inverse_counts(index: Tensor, count: int, dtype: torch.dtype, root: bool = False) -> Tensor:
    """1/c_r, or 1/√c_r, for the number c_r of times that r occurs, (R,); 0 if c_r is 0.

    Args:
        index: (E,) integers in [0, R), for which :func:`.can_read` holds.
        count: R.
        dtype: float32 or float64.
        root: whether to take the square root.
    """
    found = np.bincount(index.numpy(), minlength=count).astype(_TYPES[dtype])
    found = np.sqrt(found, out=found) if root else found
    np.divide(1.0, found, out=found, where=found > 0)
    return torch.from_numpy(found)


def gathered(numbers: Tensor, index: Tensor) -> Tensor:
    """``numbers[index]``, (E,), for numbers (R,) without gradients."""
    if not can_read(index) or index.numel() > SHORT:
        return numbers.index_select(0, index)
    return torch.from_numpy(numbers.numpy().take(index.numpy()))


_TYPES = {torch.float32: np.float32, torch.float64: np.float64}
