"""Whether features are worth keeping sparse."""

from __future__ import annotations

# How many flops of a dense product take as long as one of X Θ with X sparse. On two cores in
# float32, with 16 and 64 outputs, 1 % to 20 % of non-zeros and the gradient of Θ included, from 2
# (where the dense product runs at the speed of memory) to 5.
SPARSE_FEATURE_FLOP = 5.0

# A dense X of fewer numbers is multiplied in less time than it takes to call a kernel.
SMALL = 1 << 16


def predicted_share(num_entries: int, shape: tuple[int, int]) -> float:
    """The time of X Θ and of the gradient of Θ with X sparse, divided by that with X dense.

    Args:
        num_entries: how many non-zeros X has.
        shape: (M, P).
    """
    return SPARSE_FEATURE_FLOP * num_entries / max(1, shape[0] * shape[1])


def sparse_pays(num_entries: int, shape: tuple[int, int]) -> bool:
    """Whether to keep X sparse: it has some size, and its density pays."""
    large = shape[0] * shape[1] >= SMALL
    return large and predicted_share(num_entries, shape) < 1.0
