"""The entry of the largest or least product of each row, for max and min.

Every place of the tile (entries, heads, channels) stores its best product and the position of that;
the places are compared once, at the end. Pieces store both, and a second kernel compares them in
order.

A GPU profile should look like that of ``spmm``, with twice the registers.
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
    head_rows,
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
from .segments import empty_partial

# A position after every entry of a job, and after every entry.
LAST, NEVER = tl.constexpr(2**31 - 1), tl.constexpr(2**62)


@triton.jit
def first_best(best, where, NONE: tl.constexpr):
    """The best product along the first axis, and its first position; NONE if there is none."""
    top = tl.max(best, 0)
    return top, tl.min(tl.where(best == top[None], where, NONE), 0)


@of_jobs
def extreme_kernel(
    index, value, x, out, partial, partial_best,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks, channel_blocks,
    SPLIT: tl.constexpr, HAS_VALUE: tl.constexpr, SHARED: tl.constexpr, LARGEST: tl.constexpr,
    HIGHEST: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[r, h, c] = argmax_{e of row r} value[e, h] x[index[e], h, c]``, -1 without entries."""
    channels = multiple(channels, LANES)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    best = tl.full([BLOCK_E, BLOCK_H, BLOCK_C], -float("inf"), ACC)
    where = tl.full([BLOCK_E, BLOCK_H, BLOCK_C], LAST, tl.int32)  # within the job
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        score = head_rows(x, place, live, h, c, heads, channels, SHARED, WIDE, ACC)
        if HAS_VALUE:
            score = entry_heads(value, e, live, h, heads, WIDE, ACC)[:, :, None] * score
        if not LARGEST:
            score = -score
        # Clamp to finite numbers, so that NaN is above all scores and empty places are below.
        is_nan = score != score
        score = tl.where(score > HIGHEST, HIGHEST, tl.where(score < -HIGHEST, -HIGHEST, score))
        score = tl.where(is_nan, float("inf"), score)
        better = live[:, None, None] & (score > best)
        best = tl.where(better, score, best)
        where = tl.where(better, (e - begin).to(tl.int32)[:, None, None], where)
    top, first = first_best(best, where, LAST)
    inside = (h < heads)[:, None] & (c < channels)[None, :]
    target = (h * channels)[:, None] + c[None, :]
    width = heads * channels
    if SPLIT:
        slot = offset(number, width, WIDE) + target
        tl.store(partial_best + slot, top, mask=inside & is_piece)
    first = tl.where(first == LAST, -1, begin + first.to(tl.int64))
    keep(out, partial, row, number, width, target, inside, is_piece, whole, first, SPLIT, WIDE)


@triton.jit
def extreme_pieces_kernel(
    partial, partial_best, piece_ptr, long, out, width, blocks,
    WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Compare the pieces of each long row; the first of equal products is taken."""
    number = tl.program_id(0) // blocks
    w = (tl.program_id(0) % blocks) * BLOCK_W + tl.arange(0, BLOCK_W)
    best = tl.full([BLOCK_T, BLOCK_W], -float("inf"), ACC)
    where = tl.full([BLOCK_T, BLOCK_W], NEVER, tl.int64)
    end = tl.load(piece_ptr + number + 1)
    for start in range(tl.load(piece_ptr + number), end, BLOCK_T):
        piece = start + tl.arange(0, BLOCK_T)
        inside = (piece < end)[:, None] & (w < width)[None, :]
        slot = offset(piece, width, WIDE)[:, None] + w[None, :]
        score = tl.load(partial_best + slot, mask=inside, other=-float("inf"))
        better = inside & (score > best)
        best = tl.where(better, score, best)
        where = tl.where(better, tl.load(partial + slot, mask=inside, other=0), where)
    _top, first = first_best(best, where, NEVER)
    row = tl.load(long + number)
    tl.store(out + offset(row, width, WIDE) + w, first, mask=(w < width) & (row >= 0))


def spmm_arg(ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool) -> Tensor:
    """Find the entry of each row with the largest or least product, (R, H, channels)."""
    heads, channels = x.size(1) if value is None else value.size(1), x.size(2)
    out = torch.empty((ptr.numel() - 1, heads, channels), dtype=torch.int64, device=x.device)
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    best = empty_partial(pieces, x, heads, channels)
    partial = None if best is None else torch.empty_like(best, dtype=torch.int64)
    kinds = x.size(1) == 1, pieces is not None, value is not None, largest
    wide = needs_int64(index, value, x, out, partial)
    of_rows, of_pieces = _plans(heads, channels, x.dtype, *kinds, wide)
    launch(
        of_rows, x, ptr, pieces, index, x if value is None else value, x,
        out, out if partial is None else partial, out if best is None else best,
    )  # fmt: skip
    if pieces is not None:
        found = partial, best, pieces.ptr, pieces.long, out
        of_pieces.start(pieces.long_rows, x, found)
    return out


@planned
def _plans(
    heads: int,
    channels: int,
    dtype: torch.dtype,
    shared: bool,
    split: bool,
    has_value: bool,
    largest: bool,
    wide: bool,
) -> tuple[Plan, Plan]:
    """Those of rows, and of the pieces of long ones."""
    blocks = tile(heads, channels, dtype, held=2)  # products and positions
    parts = blocks.head_blocks, blocks.channel_blocks
    of_rows = plan(
        extreme_kernel, parts[0] * parts[1], (heads, channels, *parts),
        SPLIT=split, HAS_VALUE=has_value, SHARED=shared, LARGEST=largest,
        HIGHEST=torch.finfo(accumulator(dtype)).max, WIDE=wide, ACC=wide_type(dtype),
        LANES=lanes(dtype, channels),
        BLOCK_E=blocks.entries, BLOCK_H=blocks.heads, BLOCK_C=blocks.channels,
        num_warps=blocks.warps,
    )  # fmt: skip
    width = heads * channels
    block_w = min(power_of_two(width), 64)
    number = ceil_div(width, block_w)
    of_pieces = plan(
        extreme_pieces_kernel, number, (width, number),
        WIDE=wide, ACC=wide_type(dtype), BLOCK_T=8, BLOCK_W=block_w, num_warps=1,
    )  # fmt: skip
    return of_rows, of_pieces
