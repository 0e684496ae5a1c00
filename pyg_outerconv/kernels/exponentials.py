"""Weights Σ_d exp(query + key) up to a factor for each target, without overflow.

A factor common to all weights of a target cancels when they are divided by their sum. The weights
of a target are divided by the largest term exp(query + key) over its own sources, so that no term
exceeds 1 and one of them is 1: nothing overflows, only terms that are negligible beside another
vanish, and sources that a target does not attend to have no influence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .additive import additive
from .sparsity import Sparsity
from .spmm import spmm


def on_edges(sparsity: Sparsity, query: Tensor, key: Tensor) -> Tensor:
    """``Σ_d exp(query[row, h, d] + key[column, h, d] - c[row, h])`` for each entry, (E, H).

    c[row, h] is the largest exponent of the row.

    Args:
        sparsity: the places of the entries, R × C.
        query: (R, H, D).
        key: (C, H, D), -inf for absent sources.
    """
    with torch.no_grad():
        peak = spmm(sparsity, None, key, aggr="max")
    shifted = query - largest(query, peak).unsqueeze(-1)
    return additive(sparsity, shifted, key, key.new_ones(key.shape[1:]), activation="exp")


def of_all(
    query: Tensor, key: Tensor, block: tuple[Tensor, Tensor] | None = None, num_blocks: int = 1
) -> tuple[Tensor, Tensor]:
    """Factors of the weights if targets attend to all sources, or to all of their block.

    Args:
        query: (N, ..., D).
        key: (M, ..., D), -inf for absent sources.
        block: the block of each source (M,) and of each target (N,), from 0; None for a single one.
        num_blocks: the number of blocks.

    Returns:
        Factors (N, ..., D) and (M, ..., D) from 0 to 1; the weights are their products, summed
        over D.
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
    of_target = (query + seen - largest(query, seen).unsqueeze(-1)).exp()
    return of_target, (key - finite(own)).exp()


def largest(query: Tensor, peak: Tensor) -> Tensor:
    """max_d (query + peak), (...), for (..., D) and (..., D); 0 instead of -inf; no gradient."""
    return finite((query.detach() + peak.detach()).amax(-1))


def finite(x: Tensor) -> Tensor:
    """Replace -inf by 0."""
    return x.masked_fill(x == -torch.inf, 0.0)
