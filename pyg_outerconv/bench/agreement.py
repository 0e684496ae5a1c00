"""Whether two contenders do the same work: their results, compared before any is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """max|Δ| / max|expected|, the largest over pairs of tensors; inf where shapes differ."""
    if len(actual) != len(expected):
        return math.inf
    largest = 0.0
    for mine, theirs in zip(actual, expected, strict=True):
        if mine.shape != theirs.shape:
            return math.inf
        if not theirs.numel():
            continue
        scale = float(theirs.abs().max())
        gap = float((mine.to(theirs.dtype) - theirs).abs().max())
        ratio = gap if scale == 0 else gap / scale
        if math.isnan(ratio):  # max() would drop it
            return math.inf
        largest = max(largest, ratio)
    return largest
