"""Products of explicit edge sets: the edges of A·B, and weighted sums of edge sets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from .edges import EdgeBasis
from .pattern import Pattern

REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def compose_edges(first: EdgeBasis, second: EdgeBasis, reduce: str = "sum") -> EdgeBasis:
    """The edges of A·B: every pair of an edge m → j of A and an edge j → n of B.

    ``C[m, n] = reduce_j A[m, j] B[j, n]``; parallel results are merged by ``reduce``, so that at
    most one edge runs from m to n. Differentiable in both values. Both have one label.

    Args:
        first: A, of size (M, J).
        second: B, of size (J, N).
        reduce: 'sum' (the matrix product), 'mean', 'max' or 'min' over the pairs.

    Raises:
        ValueError: sizes do not fit, a basis has several labels, or ``reduce`` is unknown.
    """
    if first.num_bases != 1 or second.num_bases != 1:
        raise RefusedValue(
            refusal(
                "a product of edges is of single matrices",
                "one label each",
                f"{first.num_bases} and {second.num_bases}",
            )
        )
    if first.size[1] != second.size[0]:
        raise RefusedValue(
            refusal("sizes must fit a product", f"({first.size[1]}, N)", second.size)
        )
    a, b = first.pattern, second.pattern
    # For each edge of A, the edges of B that leave its target.
    fan_out = b.source_ptr.diff().long().index_select(0, a.target)
    left = torch.arange(a.num_edges, device=a.device).repeat_interleave(fan_out)
    start = b.source_ptr.long().index_select(0, a.target)
    offset = torch.arange(left.numel(), device=a.device) - (fan_out.cumsum(0) - fan_out)[left]
    right = b.by_source.index_select(0, start[left] + offset).long()
    index = torch.stack([a.source.index_select(0, left), b.target.index_select(0, right)])
    dtype = first.dtype or second.dtype
    value = first.values(dtype).index_select(0, left) * second.values(dtype).index_select(0, right)
    return merge_parallel(index, value, (first.size[0], second.size[1]), reduce)


def merge_parallel(
    index: Tensor, value: Tensor, size: tuple[int, int], reduce: str = "sum"
) -> EdgeBasis:
    """One edge in the place of all that share source and target, values (E,) reduced."""
    if reduce not in REDUCTIONS:
        raise RefusedValue(
            refusal("parallel edges are merged by a reduction", sorted(REDUCTIONS), repr(reduce))
        )
    key = index[1].long() * size[0] + index[0].long()
    unique, group = key.unique(return_inverse=True)
    merged = value.new_zeros(unique.numel()).scatter_reduce(
        0, group, value, REDUCTIONS[reduce], include_self=False
    )
    pattern = Pattern.build(
        torch.stack([unique % max(size[0], 1), unique // max(size[0], 1)]), size=size
    )
    return EdgeBasis(pattern, pattern.sort_values(merged))


def identity_edges(size: int, dtype: torch.dtype | None, device: torch.device) -> EdgeBasis:
    """The identity matrix as edges n → n."""
    nodes = torch.arange(size, device=device)
    pattern = Pattern.build(nodes.expand(2, -1), size=(size, size))
    return EdgeBasis(pattern, torch.ones(size, dtype=dtype, device=device))


def combine(terms: list[tuple[float, EdgeBasis]]) -> EdgeBasis:
    """Σ_i c_i·A_i as one edge set; terms with c = 0 must be left out by the caller."""
    size = terms[0][1].size
    index = torch.cat([edges.index for _, edges in terms], dim=1)
    value = torch.cat([factor * edges.values() for factor, edges in terms])
    return merge_parallel(index, value, size)
