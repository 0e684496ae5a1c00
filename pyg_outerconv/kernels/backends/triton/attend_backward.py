"""The gradients of attention, without atomics: a pass over targets, then one over sources.

The target pass recomputes the scores and, for each entry and head,

    share = exp(score − logsumexp),  slope = share (<grad, value> − <grad, out>),

where slope is the gradient in the score; the sum of slope × key is the gradient in the query. The
source pass sums slope × query and share × grad over the rows of the transpose, by two ``spmm``,
which read share and slope, (entries, heads) in the accumulating dtype, through ``perm``.

A GPU profile should show five gathers of entries × heads × channels and no writes of that size.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ...tiles import accumulator
from . import balance
from .addressing import (
    MOST_CHANNELS,
    bounds,
    entry_heads,
    folded,
    halves,
    head_rows,
    joined,
    keep,
    lanes,
    multiple,
    needs_int64,
    offset,
    power_of_two,
    tile,
    wide_type,
)
from .attend import bend, ends, scores
from .balance import Plan, launch, of_jobs, plan, planned
from .products import dots, spmm
from .segments import add_pieces, empty_partial, finite, segment_sum


@of_jobs
def target_kernel(
    index, query, key, value, bias, out, lse, grad, share_out, slope_out, query_grad, partial,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, depth, channels, head_blocks, scale, scale_low,
    SPLIT: tl.constexpr, ENDS: tl.constexpr, HAS_BIAS: tl.constexpr, WITH_QUERY: tl.constexpr,
    ONE: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    LANES_D: tl.constexpr, LANES_C: tl.constexpr, FOLD: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Share and slope of each entry and head, and the query's gradient if D fits into a block."""
    depth, channels = multiple(depth, LANES_D), multiple(channels, LANES_C)
    number = tl.program_id(0) // head_blocks
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    one = tl.arange(0, 1)
    # <grad, out> of the row, which is the mean of <grad, value> over its entries.
    mean = dots(
        grad, out, row, row + one, one == 0, h, heads, channels,
        False, False, WIDE, ACC, ONE, 1, BLOCK_H, BLOCK_C,
    )  # fmt: skip
    shift = finite(entry_heads(lse, row + one, one == 0, h, heads, WIDE, ACC))
    total = tl.zeros([BLOCK_E // FOLD, BLOCK_H, BLOCK_D], ACC)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        score = scores(
            query, key, bias, row, e, place, live, h, heads, depth, scale, scale_low,
            ENDS, HAS_BIAS, WIDE, ACC, WITH_QUERY, BLOCK_E, BLOCK_H, BLOCK_D,
        )  # fmt: skip
        along = dots(
            grad, value, row, place, live, h, heads, channels,
            False, False, WIDE, ACC, ONE, BLOCK_E, BLOCK_H, BLOCK_C,
        )  # fmt: skip
        share = tl.exp(score - shift)
        slope = share * (along - mean)
        if ENDS:
            term = ends(query, key, row, place, live, h, heads, WIDE, ACC)
            slope = slope * bend(term, scale, scale_low, ACC)
            total += folded(slope[:, :, None], FOLD)
        elif WITH_QUERY:
            rows = head_rows(key, place, live, h, d, heads, depth, False, WIDE, ACC)
            total += folded(slope[:, :, None] * rows, FOLD)
        inside = live[:, None] & (h < heads)[None, :]
        where = offset(e, heads, WIDE)[:, None] + h[None, :]
        tl.store(share_out + where, share, mask=inside)
        tl.store(slope_out + where, slope, mask=inside)
    if WITH_QUERY:
        result = tl.sum(total, 0)
        if not ENDS:
            result = result * joined(scale, scale_low, ACC)
        inside = (h < heads)[:, None] & (d < depth)[None, :]
        where = (h * depth)[:, None] + d[None, :]
        keep(
            query_grad, partial, row, number, heads * depth, where, inside, is_piece, whole, result,
            SPLIT, WIDE,
        )  # fmt: skip


def attend_backward(
    ptr: Tensor,
    index: Tensor,
    ptr_t: Tensor,
    index_t: Tensor,
    perm_t: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of attention in query, key, value and score."""
    share, slope, query_grad = _target_pass(
        ptr, index, query, key, value, bias, scale, query.size(2), False, out, logsumexp, grad
    )
    key_grad = spmm(ptr_t, index_t, slope, query, perm_t, scale)
    value_grad = spmm(ptr_t, index_t, share, grad, perm_t)
    of_bias = query.new_empty((0, query.size(1))) if bias is None else slope.to(query.dtype)
    return query_grad, key_grad, value_grad, of_bias


def attend_ends_backward(
    ptr: Tensor,
    index: Tensor,
    ptr_t: Tensor,
    index_t: Tensor,
    perm_t: Tensor,
    at_target: Tensor,
    at_source: Tensor,
    value: Tensor,
    slope: float,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of attention in the terms of both ends and in the values."""
    share, of_term, of_target = _target_pass(
        ptr, index, at_target, at_source, value, None, slope, 1, True, out, logsumexp, grad
    )
    of_source = segment_sum(ptr_t, of_term, perm_t).to(value.dtype)
    return of_target, of_source, spmm(ptr_t, index_t, share, grad, perm_t)


def _target_pass(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    depth: int,
    ends: bool,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Share and slope (E, H) in the accumulating dtype, and the gradient in the query."""
    heads, channels = value.size(1), value.size(2)
    share = torch.empty((index.numel(), heads), dtype=accumulator(query.dtype), device=query.device)
    slope, query_grad = torch.empty_like(share), torch.empty_like(query)
    if query.size(0) * heads == 0:
        return share, slope, query_grad
    with_query = depth <= MOST_CHANNELS
    pieces = balance.pieces_of(ptr, index.size(0))
    partial = empty_partial(pieces, query, heads, depth) if with_query else None
    kinds = pieces is not None, ends, bias is not None, with_query
    wide = needs_int64(index, query, key, value, out, share, partial)
    launch(
        _plan(heads, depth, channels, query.dtype, *kinds, wide, scale), query, ptr, pieces,
        index, query, key, value, query if bias is None else bias, out, logsumexp, grad,
        share, slope, query_grad, query_grad if partial is None else partial,
    )  # fmt: skip
    if not with_query:
        query_grad = spmm(ptr, index, slope, key, scale=scale)
    elif pieces is not None and partial is not None:
        add_pieces(pieces, partial, query_grad)
    return share, slope, query_grad


@planned
def _plan(
    heads: int,
    depth: int,
    channels: int,
    dtype: torch.dtype,
    split: bool,
    ends: bool,
    has_bias: bool,
    with_query: bool,
    wide: bool,
    scale: float,
) -> Plan:
    held = 1 if ends and dtype != torch.float64 else 2  # rows of values, or of keys and values
    blocks = tile(heads, max(depth, channels), dtype, held=held)
    block_d = min(power_of_two(depth), blocks.channels)
    block_c = min(power_of_two(channels), blocks.channels)
    sizes = heads, depth, channels, blocks.head_blocks, *halves(scale)
    return plan(
        target_kernel, blocks.head_blocks, sizes,
        SPLIT=split, ENDS=ends, HAS_BIAS=has_bias, WITH_QUERY=with_query,
        ONE=channels <= block_c, WIDE=wide, ACC=wide_type(dtype),
        LANES_D=lanes(dtype, depth), LANES_C=lanes(dtype, channels),
        FOLD=1 if ends else blocks.fold, BLOCK_E=blocks.entries,
        BLOCK_H=blocks.heads, BLOCK_D=block_d, BLOCK_C=block_c, num_warps=blocks.warps,
    )  # fmt: skip
