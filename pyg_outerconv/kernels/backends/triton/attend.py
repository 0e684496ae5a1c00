"""Attention over the entries of each row: score, online softmax and weighted sum in one kernel.

A program computes one job for a block of heads; it gathers tiles (entries, heads, channels) of keys
and of values. Scores need all channels of the query, which are read in blocks. Values with more
channels than a block are computed by several programs, each of which recomputes the scores. Pieces
store their normalised sum and the logarithm of their total weight, from which they are merged.

A GPU profile should show the gathers of keys and values as the limit; there is one exponential for
each entry and head, one or two hundredths of the loads.

The gradients take two passes. That over targets recomputes the scores and, for each entry and head,

    share = exp(score − logsumexp),  slope = share (<grad, value> − <grad, out>),

where slope is the gradient in the score; the sum of slope × key is the gradient in the query. That
over sources sums slope × query and share × grad over the rows of the transpose, by two ``spmm``,
which read share and slope, (entries, heads) in the accumulating dtype, through ``perm``. A GPU
profile should show five gathers of entries × heads × channels and no writes of that size.
"""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import Attention
from ...tiles import accumulator
from . import balance
from .addressing import (
    MOST_CHANNELS,
    BlockSizes,
    bounds,
    ceil_div,
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
)
from .balance import Plan, launch, of_jobs, plan, planned
from .products import dots, spmm
from .segments import add_pieces, empty_partial, finite, segment_sum


@triton.jit
def ends(at_target, at_source, row, place, live, h, heads, WIDE: tl.constexpr, ACC: tl.constexpr):
    """``at_target[row] + at_source[place]``, (entries, heads)."""
    one = tl.arange(0, 1)
    near = entry_heads(at_target, row + one, one == 0, h, heads, WIDE, ACC)
    return near + entry_heads(at_source, place, live, h, heads, WIDE, ACC)


@triton.jit
def bend(term, slope, slope_low, ACC: tl.constexpr):
    """The slope of the leaky ReLU at ``term``."""
    return tl.where(term > 0, tl.full(term.shape, 1.0, ACC), joined(slope, slope_low, ACC))


@triton.jit
def scores(
    query, key, bias, row, e, place, live, h, heads, depth, scale, scale_low,
    ENDS: tl.constexpr, HAS_BIAS: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    ONE: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """``scale <query[row], key[place]> + bias[e]``, (entries, heads); -inf where not live.

    If ENDS, they are ``leaky_relu(query[row] + key[place])`` of one number each, with ``scale`` as
    the slope.
    """
    if ENDS:
        score = ends(query, key, row, place, live, h, heads, WIDE, ACC)
        score = score * bend(score, scale, scale_low, ACC)
    else:
        score = dots(
            query, key, row, place, live, h, heads, depth,
            False, False, WIDE, ACC, ONE, BLOCK_E, BLOCK_H, BLOCK_D,
        )  # fmt: skip
        score = score * joined(scale, scale_low, ACC)
    if HAS_BIAS:
        score += entry_heads(bias, e, live, h, heads, WIDE, ACC)
    return tl.where(live[:, None], score, -float("inf"))


@triton.jit
def normalised(total, weighted, high):
    """The weighted mean (heads, channels) and log(sum exp(score)) (heads,); 0, -inf if empty."""
    divisor = tl.where(total == 0.0, 1.0, total)
    lse = tl.where(total == 0.0, -float("inf"), high + tl.log(divisor))
    return tl.sum(weighted, 0) / divisor[:, None], lse


@of_jobs
def attend_kernel(
    index, query, key, value, bias, out, lse_out, partial, partial_lse,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, depth, channels, head_blocks, channel_blocks, scale, scale_low,
    SPLIT: tl.constexpr, ENDS: tl.constexpr, HAS_BIAS: tl.constexpr, ONE: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr, LANES_D: tl.constexpr, LANES_C: tl.constexpr,
    FOLD: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[r, h] = sum_e softmax_e(score[e, h]) value[index[e], h]``, and log(sum exp(score))."""
    depth, channels = multiple(depth, LANES_D), multiple(channels, LANES_C)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    high = tl.full([BLOCK_H], -float("inf"), ACC)
    total = tl.zeros([BLOCK_H], ACC)
    weighted = tl.zeros([BLOCK_E // FOLD, BLOCK_H, BLOCK_C], ACC)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        score = scores(
            query, key, bias, row, e, place, live, h, heads, depth, scale, scale_low,
            ENDS, HAS_BIAS, WIDE, ACC, ONE, BLOCK_E, BLOCK_H, BLOCK_D,
        )  # fmt: skip
        rows = head_rows(value, place, live, h, c, heads, channels, False, WIDE, ACC)
        top = tl.maximum(high, tl.max(score, 0))
        shift = finite(top)
        fade = tl.exp(high - shift)
        weight = tl.exp(score - shift[None, :])
        total = total * fade + tl.sum(weight, 0)
        weighted = weighted * fade[None, :, None] + folded(weight[:, :, None] * rows, FOLD)
        high = top
    result, lse = normalised(total, weighted, high)
    inside = (h < heads)[:, None] & (c < channels)[None, :]
    where = (h * channels)[:, None] + c[None, :]
    keep(
        out, partial, row, number, heads * channels, where, inside, is_piece, whole, result,
        SPLIT, WIDE,
    )  # fmt: skip
    # All programs for the channels of these heads have the same result; the first one stores it.
    first = (h < heads) & (block % channel_blocks == 0)
    keep(lse_out, partial_lse, row, number, heads, h, first, is_piece, whole, lse, SPLIT, WIDE)


@triton.jit
def attend_pieces_kernel(
    partial, partial_lse, piece_ptr, long, out, lse_out,
    heads, channels, head_blocks, channel_blocks,
    WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr, FOLD: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Merge the pieces of each long row, by a softmax over their total weights."""
    channels = multiple(channels, LANES)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks)
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    high = tl.full([BLOCK_H], -float("inf"), ACC)
    total = tl.zeros([BLOCK_H], ACC)
    weighted = tl.zeros([BLOCK_T // FOLD, BLOCK_H, BLOCK_C], ACC)
    end = tl.load(piece_ptr + number + 1)
    for start in range(tl.load(piece_ptr + number), end, BLOCK_T):
        piece = start + tl.arange(0, BLOCK_T)
        live = piece < end
        score = entry_heads(partial_lse, piece, live, h, heads, WIDE, ACC)
        score = tl.where(live[:, None], score, -float("inf"))
        rows = head_rows(partial, piece, live, h, c, heads, channels, False, WIDE, ACC)
        top = tl.maximum(high, tl.max(score, 0))
        shift = finite(top)
        fade = tl.exp(high - shift)
        weight = tl.exp(score - shift[None, :])
        total = total * fade + tl.sum(weight, 0)
        weighted = weighted * fade[None, :, None] + folded(weight[:, :, None] * rows, FOLD)
        high = top
    result, lse = normalised(total, weighted, high)
    row = tl.load(long + number)
    where = (h * channels)[:, None] + c[None, :]
    inside = (h < heads)[:, None] & (c < channels)[None, :] & (row >= 0)
    tl.store(out + offset(row, heads * channels, WIDE) + where, result, mask=inside)
    first = (h < heads) & (block % channel_blocks == 0) & (row >= 0)
    tl.store(lse_out + offset(row, heads, WIDE) + h, lse, mask=first)


def attend(ptr: Tensor, index: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
    """Attend along the entries: the result (R, H, V) and log(sum exp(score)) (R, H)."""
    query, key, value, bias, scale, ends = attention
    depth = 1 if ends else query.size(2)
    rows, heads, channels = ptr.numel() - 1, value.size(1), value.size(2)
    out = query.new_empty((rows, heads, channels))
    lse = torch.empty((rows, heads), dtype=accumulator(query.dtype), device=query.device)
    if lse.numel() == 0:
        return out, lse
    pieces = balance.pieces_of(ptr, index.size(0))
    partial = empty_partial(pieces, query, heads, channels)
    partial_lse = empty_partial(pieces, query, heads)
    kinds = {"SPLIT": pieces is not None, "ENDS": ends, "HAS_BIAS": bias is not None}
    kinds["WIDE"] = needs_int64(index, query, key, value, bias, out, partial)
    of_rows, of_pieces = _plans(heads, depth, channels, query.dtype, scale, **kinds)
    launch(
        of_rows, query, ptr, pieces,
        index, query, key, value, query if bias is None else bias, out, lse,
        out if partial is None else partial, lse if partial_lse is None else partial_lse,
    )  # fmt: skip
    if pieces is not None:
        arguments = partial, partial_lse, pieces.ptr, pieces.long, out, lse
        of_pieces.start(pieces.long_rows, query, arguments)
    return out, lse


def blocks_of(
    heads: int, depth: int, channels: int, dtype: torch.dtype, ends: bool
) -> tuple[BlockSizes, dict[str, int]]:
    """The block sizes of kernels that score entries, and what these are compiled for."""
    num_tiles = 1 if ends and dtype != torch.float64 else 2  # rows of values, or of keys and values
    blocks = tile(heads, max(depth, channels), dtype, num_tiles=num_tiles)
    sizes = (min(power_of_two(width), blocks.channels) for width in (depth, channels))
    constants = {**blocks.constants, **dict(zip(("BLOCK_D", "BLOCK_C"), sizes, strict=True))}
    return blocks, {**constants, "LANES_D": lanes(dtype, depth), "LANES_C": lanes(dtype, channels)}


@planned
def _plans(
    heads: int, depth: int, channels: int, dtype: torch.dtype, scale: float, **kinds: bool
) -> tuple[Plan, Plan]:
    """Those of rows, and of the pieces of long ones."""
    blocks, constants = blocks_of(heads, depth, channels, dtype, kinds["ENDS"])
    parts = blocks.head_blocks, max(1, ceil_div(channels, constants["BLOCK_C"]))
    of_rows = plan(
        attend_kernel, dtype, prod(parts), (heads, depth, channels, *parts, *halves(scale)),
        **kinds, **constants, ONE=depth <= constants["BLOCK_D"], FOLD=blocks.fold,
        maxnreg=64 if dtype.itemsize == 2 else None,
    )  # fmt: skip
    wide = accumulator(dtype)
    blocks = tile(heads, channels, wide, num_tiles=2)
    of_pieces = plan(
        attend_pieces_kernel, dtype, prod(blocks.parts), (heads, channels, *blocks.parts),
        WIDE=kinds["WIDE"], LANES=lanes(wide, channels), FOLD=blocks.fold,
        BLOCK_T=blocks.entries, BLOCK_H=blocks.heads, BLOCK_C=blocks.channels,
        num_warps=blocks.warps,
    )  # fmt: skip
    return of_rows, of_pieces


# Gradients ---------------------------------------------------------------------------------------


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
    attention: Attention,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of attention in query, key, value and score."""
    query, _, value, bias, scale, ends = attention
    share, slope, of_query = _target_pass(ptr, index, attention, out, logsumexp, grad)
    if ends:
        of_key = segment_sum(ptr_t, slope, perm_t).to(value.dtype)
    else:
        of_key = spmm(ptr_t, index_t, slope, query, perm_t, scale)
    of_value = spmm(ptr_t, index_t, share, grad, perm_t)
    of_bias = value.new_empty((0, value.size(1))) if bias is None else slope.to(value.dtype)
    return of_query, of_key, of_value, of_bias


def _target_pass(
    ptr: Tensor, index: Tensor, attention: Attention, out: Tensor, logsumexp: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Share and slope (E, H) in the accumulating dtype, and the gradient in the query."""
    query, key, value, bias, scale, ends = attention
    heads, channels, depth = value.size(1), value.size(2), 1 if ends else query.size(2)
    share = torch.empty((index.numel(), heads), dtype=accumulator(query.dtype), device=query.device)
    slope, query_grad = torch.empty_like(share), torch.empty_like(query)
    if query.size(0) * heads == 0:
        return share, slope, query_grad
    with_query = depth <= MOST_CHANNELS
    pieces = balance.pieces_of(ptr, index.size(0))
    partial = empty_partial(pieces, query, heads, depth) if with_query else None
    kinds = {"SPLIT": pieces is not None, "ENDS": ends, "HAS_BIAS": bias is not None}
    kinds |= {
        "WITH_QUERY": with_query,
        "WIDE": needs_int64(index, query, key, value, out, share, partial),
    }
    launch(
        _plan(heads, depth, channels, query.dtype, scale, **kinds), query, ptr, pieces,
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
    heads: int, depth: int, channels: int, dtype: torch.dtype, scale: float, **kinds: bool
) -> Plan:
    blocks, constants = blocks_of(heads, depth, channels, dtype, kinds["ENDS"])
    return plan(
        target_kernel, dtype, blocks.head_blocks,
        (heads, depth, channels, blocks.head_blocks, *halves(scale)),
        **kinds, **constants, ONE=channels <= constants["BLOCK_C"],
        FOLD=1 if kinds["ENDS"] else blocks.fold,
    )  # fmt: skip
