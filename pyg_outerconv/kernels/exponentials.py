"""Products of exponentials, of each target up to a factor: Σ_d exp(query + key) in any range.

A factor of all weights of one target cancels where they are divided by their sum. It is the largest
term of those that the target sees, so that no term of a sum is more than 1, and one of them is 1:
nothing overflows, nothing vanishes but what is too small beside another, and nothing that a target
does not see changes its row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .additive import additive
from .sparsity import Sparsity
from .spmm import spmm


def on_edges(sparsity: Sparsity, query: Tensor, key: Tensor) -> Tensor:
    """``Σ_d exp(query[row, h, d] + key[column, h, d] - c[row, h])`` along the entries: (E, H).

    Args:
        sparsity: R × C.
        query: (R, H, D).
        key: (C, H, D), -inf for what is not there.
    """
    with torch.no_grad():
        peak = spmm(sparsity, None, key, reduce="max")
    near = query - largest(query, peak).unsqueeze(-1)
    return additive(sparsity, near, key, key.new_ones(key.shape[1:]), activation="exp")


def of_all(
    query: Tensor, key: Tensor, block: tuple[Tensor, Tensor] | None = None, num_blocks: int = 1
) -> tuple[Tensor, Tensor]:
    """Factors of the weights where targets see all sources, or all of their block.

    Args:
        query: (N, ..., D).
        key: (M, ..., D), -inf for what is not there.
        block: the numbers >= 0 of the blocks of sources (M,) and of targets (N,).
        num_blocks: how many there are.

    Returns:
        (N, ..., D) and (M, ..., D), both within 0 and 1, whose products are the weights.
    """
    of_block = key.detach().new_full((num_blocks, *key.shape[1:]), -torch.inf)
    if block is None:
        source = target = key.new_zeros((), dtype=torch.long)
        if key.size(0):
            of_block = key.detach().amax(0, keepdim=True)
        seen, own = of_block.expand_as(query), of_block.expand_as(key)
    else:
        source, target = (end.long() for end in block)
        place = source.view(-1, *(1,) * (key.dim() - 1)).expand_as(key)
        of_block = of_block.scatter_reduce(0, place, key.detach(), "amax")
        seen, own = of_block.index_select(0, target), of_block.index_select(0, source)
    far = (query + seen - largest(query, seen).unsqueeze(-1)).exp()
    return far, (key - finite(own)).exp()


def largest(query: Tensor, peak: Tensor) -> Tensor:
    """The largest exponent that targets see: (..., D) and (..., D) to (...), without a gradient."""
    return finite((query.detach() + peak.detach()).amax(-1))


def finite(x: Tensor) -> Tensor:
    """Zeros where there is nothing, that is -inf."""
    return x.masked_fill(x == -torch.inf, 0.0)
