"""Decide from the density of the features whether they stay sparse."""

from __future__ import annotations

# The time of a flop of X Θ with X sparse, divided by that of a flop of the dense product. Measured
# on two cores in float32 with 16 and 64 outputs and 1 % to 20 % of non-zeros, the gradient of Θ
# included: from 2 (where memory bounds the dense product) to 5.
SPARSE_FEATURE_FLOP = 5.0

# A product with a dense X of fewer numbers takes less time than the call of a sparse kernel.
SMALL = 1 << 16


def predicted_share(num_entries: int, shape: tuple[int, int]) -> float:
    """The predicted time of X Θ and of the gradient of Θ with sparse X, over that with dense X.

    Args:
        num_entries: number of non-zeros of X.
        shape: (M, P).
    """
    return SPARSE_FEATURE_FLOP * num_entries / max(1, shape[0] * shape[1])


def sparse_pays(num_entries: int, shape: tuple[int, int]) -> bool:
    """Whether sparse X is predicted to be faster: it is large enough and sparse enough."""
    large = shape[0] * shape[1] >= SMALL
    return large and predicted_share(num_entries, shape) < 1.0
