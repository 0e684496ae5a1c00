"""Products and weighted sums of edge bases, as edges."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..kernels.edge_lists import first_of_best
from .edges import EdgeBasis
from .pattern import INT64_LIMIT, Pattern
from .subpattern import spread_runs

REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def compose_edges(first: EdgeBasis, second: EdgeBasis, aggr: str = "sum") -> EdgeBasis:
    """The edges of A_i·B_j, from all pairs of an edge m → l of A_i and an edge l → n of B_j.

    ``C[i·K₂ + j, m, n] = reduce_l A[i, m, l] B[j, l, n]``; parallel results are merged by
    ``aggr``, so that each label has at most one edge from m to n. Differentiable in both values; of
    equal results 'max' and 'min' take the first, which gets the whole gradient.
    If all values of both are ones and ``aggr`` is 'sum', parallel edges of value 1 are kept.
    """
    check_product(first.size, second.size)
    a, b = first.pattern, second.pattern
    left, right = _pairs(a, b)
    index = torch.stack([a.source.index_select(0, left), b.target.index_select(0, right)])
    label = a.label.index_select(0, left).long() * b.num_labels + b.label.index_select(0, right)
    size, num_labels = (first.size[0], second.size[1]), a.num_labels * b.num_labels
    if first.value is None and second.value is None and aggr == "sum":
        return EdgeBasis(Pattern.build(index.long(), label, size=size, num_labels=num_labels))
    dtype = first.dtype or second.dtype
    value = first.values(dtype).index_select(0, left) * second.values(dtype).index_select(0, right)
    return merge_parallel(index, value, size, aggr, label, num_labels)


def check_product(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Refuse matrices whose sizes do not fit a product."""
    if first[1] != second[0]:
        raise RefusedValue("sizes must fit a product", f"({first[1]}, N)", second)


def _pairs(a: Pattern, b: Pattern) -> tuple[Tensor, Tensor]:
    """Positions in a and in b of all pairs of edges m → l of a and l → n of b."""
    fan_out = b.source_ptr.diff().long().index_select(0, a.target)
    left, within = spread_runs(fan_out)
    start = b.source_ptr.long().index_select(0, a.target)
    return left, b.by_source.index_select(0, start[left] + within).long()


def merge_parallel(
    index: Tensor,
    value: Tensor,
    size: tuple[int, int],
    aggr: str = "sum",
    label: Tensor | None = None,
    num_labels: int = 1,
) -> EdgeBasis:
    """Merge edges that share source, target and label; their values (E,) are reduced.

    Of equal values 'max' and 'min' take the first, which gets the whole gradient.
    """
    if aggr not in REDUCTIONS:
        raise RefusedValue(
            "parallel edges are merged by a reduction", sorted(REDUCTIONS), repr(aggr)
        )
    rows, kinds = max(size[0], 1), max(num_labels, 1)
    source, end = index[0].long(), index[1].long() * kinds
    end = end if label is None else end + label
    sources = ends = None
    if rows * kinds * size[1] > INT64_LIMIT:  # too many for int64: number those that occur
        sources, source = source.unique(return_inverse=True)
        ends, end = end.unique(return_inverse=True)
        rows = max(sources.numel(), 1)
    unique, group = (end * rows + source).unique(return_inverse=True)
    if aggr in ("max", "min"):
        merged = value.gather(0, first_of_best(value, group, unique.numel(), aggr))
    else:
        merged = value.new_zeros(unique.numel()).scatter_reduce(
            0, group, value, REDUCTIONS[aggr], include_self=False
        )
    source, end = unique % rows, unique // rows
    if sources is not None and ends is not None:
        source, end = sources[source], ends[end]
    pattern = Pattern.build(
        torch.stack([source, end // kinds]), end % kinds, size=size, num_labels=num_labels
    )
    return EdgeBasis(pattern, pattern.sort_values(merged))


def identity_edges(
    size: tuple[int, int], dtype: torch.dtype | None, device: torch.device
) -> EdgeBasis:
    """The identity matrix (M, N) as edges n → n for n < min(M, N)."""
    nodes = torch.arange(min(size), device=device)
    pattern = Pattern.build(nodes.expand(2, -1), size=size)
    return EdgeBasis(pattern, torch.ones(nodes.numel(), dtype=dtype, device=device))


def combine(terms: list[tuple[float, EdgeBasis]]) -> EdgeBasis:
    """The edges of Σ_i c_i·A_i; the caller must omit terms with c = 0."""
    size = terms[0][1].size
    index = torch.cat([edges.index for _, edges in terms], dim=1)
    value = torch.cat([factor * edges.values() for factor, edges in terms])
    return merge_parallel(index, value, size)


def kronecker_edges(first: EdgeBasis, second: EdgeBasis) -> EdgeBasis:
    """The edges of A_i ⊠ B_j: (a, b) → (c, d) for edges a → c of A_i and b → d of B_j."""
    a, b = first.pattern, second.pattern

    def both(outer: Tensor, inner: Tensor, count: int) -> Tensor:
        return (outer.long().unsqueeze(1) * count + inner.long()).flatten()

    (rows, columns), (inner_rows, inner_columns) = first.size, second.size
    pattern = Pattern.build(
        torch.stack(
            [both(a.source, b.source, inner_rows), both(a.target, b.target, inner_columns)]
        ),
        both(a.label, b.label, b.num_labels),
        size=(rows * inner_rows, columns * inner_columns),
        num_labels=a.num_labels * b.num_labels,
    )
    if first.value is None and second.value is None:
        return EdgeBasis(pattern)
    dtype = first.dtype or second.dtype
    value = torch.outer(first.values(dtype), second.values(dtype)).flatten()
    return EdgeBasis(pattern, pattern.sort_values(value))
