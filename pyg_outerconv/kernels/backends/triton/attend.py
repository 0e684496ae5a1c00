"""Attention over the entries of each row: score, online softmax and weighted sum in one kernel.

A program computes one job for a block of heads; it gathers tiles (entries, heads, channels) of keys
and of values. Scores need all channels of the query, which are read in blocks. Values with more
channels than a block are computed by several programs, each of which recomputes the scores. Pieces
store their normalised sum and the logarithm of their total weight, from which they are merged.

A GPU profile should show the gathers of keys and values as the limit; there is one exponential for
each entry and head, one or two hundredths of the loads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tiles import accumulator
from . import balance
from .addressing import (
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
    wide_type,
)
from .balance import Plan, launch, of_jobs, plan, planned
from .products import dots
from .segments import empty_partial, finite


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


def attend(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attend along the entries: the result (R, H, V) and log(sum exp(score)) (R, H)."""
    return _attend(ptr, index, query, key, value, bias, scale, query.size(2), False)


def attend_ends(
    ptr: Tensor,
    index: Tensor,
    at_target: Tensor,
    at_source: Tensor,
    value: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """Attend along the entries by scores of one number for each end."""
    return _attend(ptr, index, at_target, at_source, value, None, slope, 1, True)


def _attend(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    depth: int,
    ends: bool,
) -> tuple[Tensor, Tensor]:
    rows, heads, channels = ptr.numel() - 1, value.size(1), value.size(2)
    out = query.new_empty((rows, heads, channels))
    lse = torch.empty((rows, heads), dtype=accumulator(query.dtype), device=query.device)
    if lse.numel() == 0:
        return out, lse
    pieces = balance.pieces_of(ptr, index.size(0))
    partial = empty_partial(pieces, query, heads, channels)
    partial_lse = empty_partial(pieces, query, heads)
    kinds = pieces is not None, ends, bias is not None
    wide = needs_int64(index, query, key, value, bias, out, partial)
    of_rows, of_pieces = _plans(heads, depth, channels, query.dtype, *kinds, wide, scale)
    launch(
        of_rows, query, ptr, pieces,
        index, query, key, value, query if bias is None else bias, out, lse,
        out if partial is None else partial, lse if partial_lse is None else partial_lse,
    )  # fmt: skip
    if pieces is not None:
        found = partial, partial_lse, pieces.ptr, pieces.long, out, lse
        of_pieces.start(pieces.long_rows, query, found)
    return out, lse


@planned
def _plans(
    heads: int,
    depth: int,
    channels: int,
    dtype: torch.dtype,
    split: bool,
    ends: bool,
    has_bias: bool,
    wide: bool,
    scale: float,
) -> tuple[Plan, Plan]:
    """Those of rows, and of the pieces of long ones."""
    held = 1 if ends and dtype != torch.float64 else 2  # rows of values, or of keys and values
    blocks = tile(heads, max(depth, channels), dtype, held=held)
    block_d = min(power_of_two(depth), blocks.channels)
    block_c = min(power_of_two(channels), blocks.channels)
    parts = blocks.head_blocks, max(1, ceil_div(channels, block_c))
    of_rows = plan(
        attend_kernel, parts[0] * parts[1], (heads, depth, channels, *parts, *halves(scale)),
        SPLIT=split, ENDS=ends, HAS_BIAS=has_bias, ONE=depth <= block_d, WIDE=wide,
        ACC=wide_type(dtype), LANES_D=lanes(dtype, depth), LANES_C=lanes(dtype, channels),
        FOLD=blocks.fold,
        BLOCK_E=blocks.entries, BLOCK_H=blocks.heads, BLOCK_D=block_d, BLOCK_C=block_c,
        num_warps=blocks.warps, maxnreg=64 if dtype.itemsize == 2 else None,
    )  # fmt: skip
    wide_dtype = accumulator(dtype)
    blocks = tile(heads, channels, wide_dtype, held=2)
    parts = blocks.head_blocks, blocks.channel_blocks
    of_pieces = plan(
        attend_pieces_kernel, parts[0] * parts[1], (heads, channels, *parts),
        WIDE=wide, ACC=wide_type(dtype), LANES=lanes(wide_dtype, channels), FOLD=blocks.fold,
        BLOCK_T=blocks.entries, BLOCK_H=blocks.heads, BLOCK_C=blocks.channels,
        num_warps=blocks.warps,
    )  # fmt: skip
    return of_rows, of_pieces
