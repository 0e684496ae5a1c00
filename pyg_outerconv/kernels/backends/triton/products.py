"""Products of a sparse and a dense matrix, and sampled dense products, for many heads.

A program computes one job for a block of heads and a block of channels; it gathers tiles (entries,
heads, channels). Heads that share ``x`` share its loads: a tile is then gathered once, as (entries,
1, channels), and multiplied by the values of every head in the block. A program of a sampled
product loads the row of ``a`` once; its pieces need no second kernel, for each entry has a result
of its own.

A GPU profile should show L2 or memory throughput as the limit, and wide loads: 16 bytes for each
thread if the number of channels is a multiple of 4. With few channels, several rows are read
together; with fewer than four entries in a row most lanes of a tile are idle.
"""

from __future__ import annotations

from functools import partial
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import balance
from .addressing import (
    bounds,
    entries_of_rows,
    entry_heads,
    folded,
    halves,
    head_rows,
    joined,
    keep_rows,
    lanes,
    multiple,
    needs_int64,
    offset,
    rows_together,
    tile,
)
from .balance import Plan, launch, of_jobs, plan, planned
from .segments import sum_rows_of


@of_jobs
def spmm_kernel(
    index, value, perm, x, out, partial,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks, channel_blocks, scale, scale_low,
    SPLIT: tl.constexpr, HAS_VALUE: tl.constexpr, HAS_PERM: tl.constexpr, SHARED: tl.constexpr,
    SCALED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
    FOLD: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[r, h, c] = scale * sum_{e of row r} value[perm[e], h] x[index[e], h, c]``."""
    channels = multiple(channels, LANES)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks) * BLOCK_R + tl.arange(0, BLOCK_R)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_R * BLOCK_E // FOLD, BLOCK_H, BLOCK_C], ACC)
    for step in range(0, tl.max(end - begin, 0), BLOCK_E):
        e, live = entries_of_rows(begin, end, step, BLOCK_R, BLOCK_E)
        place = tl.load(index + e, mask=live, other=0)
        rows = head_rows(x, place, live, h, c, heads, channels, SHARED, WIDE, ACC)
        if HAS_VALUE:
            if HAS_PERM:
                e = tl.load(perm + e, mask=live, other=0)
            weight = entry_heads(value, e, live, h, heads, WIDE, ACC)
            rows = weight[:, :, None] * rows
        total += folded(rows, FOLD)
    result = tl.sum(tl.reshape(total, [BLOCK_R, BLOCK_E // FOLD, BLOCK_H * BLOCK_C]), 1)
    if SCALED:
        result = result * joined(scale, scale_low, ACC)
    inside = (h < heads)[:, None] & (c < channels)[None, :]
    where = (h * channels)[:, None] + c[None, :]
    keep_rows(
        out, partial, row, number, heads * channels, tl.reshape(where, [BLOCK_H * BLOCK_C]),
        tl.reshape(inside, [BLOCK_H * BLOCK_C]), is_piece, whole, result, SPLIT, WIDE,
    )  # fmt: skip


def spmm(
    ptr: Tensor,
    index: Tensor,
    value: Tensor | None,
    x: Tensor,
    perm: Tensor | None = None,
    scale: float = 1.0,
    like: Tensor | None = None,
) -> Tensor:
    """``out[r, h, :] = scale * sum_{e of row r} value[perm[e], h] x[index[e], h, :]``.

    Computed in the dtype of ``x``; the result has the dtype of ``like``, if given.
    """
    heads, channels = x.size(1) if value is None else value.size(1), x.size(2)
    like = x if like is None else like
    out = like.new_empty((ptr.numel() - 1, heads, channels))
    if out.numel() == 0:
        return out
    kinds = {"SHARED": x.size(1) == 1, "HAS_VALUE": value is not None, "HAS_PERM": perm is not None}
    make_plan = partial(_plan_of_product, heads, channels, x.dtype, scale, **kinds)
    sum_rows_of(make_plan, x, ptr, index.size(0), out, index, value, perm, x)
    return out


@planned
def _plan_of_product(
    heads: int, channels: int, dtype: torch.dtype, scale: float, **kinds: bool
) -> Plan:
    shared = kinds["SHARED"]
    blocks = tile(heads, channels, dtype, shared)
    together, entries, warps = rows_together(blocks.heads * blocks.channels, dtype)
    own = {"BLOCK_E": entries, "num_warps": warps} if together > 1 else {}
    # Neither where heads share rows, nor where rows are read together, are entries a thread's own.
    fold = 1 if shared or together > 1 else blocks.fold
    return plan(
        spmm_kernel, dtype, prod(blocks.parts),
        (heads, channels, *blocks.parts, *halves(scale)), together,
        **kinds, **{**blocks.constants, **own}, SCALED=scale != 1.0,
        LANES=lanes(dtype, channels), FOLD=fold, BLOCK_R=together, maxnreg=96 if shared else None,
    )  # fmt: skip


@triton.jit
def dots(
    a, b, row, place, live, h, heads, channels,
    A_SHARED: tl.constexpr, B_SHARED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    ONE: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``<a[row, h, :], b[place, h, :]>``, (places, heads).

    ONE means that one block holds all channels: without a loop over channels, the compiler moves
    the load of ``a`` out of the loop over tiles.
    """
    total = tl.zeros([BLOCK_E, BLOCK_H], ACC)
    one = tl.arange(0, 1)
    c = tl.arange(0, BLOCK_C)
    if ONE:
        left = head_rows(a, row + one, one == 0, h, c, heads, channels, A_SHARED, WIDE, ACC)
        right = head_rows(b, place, live, h, c, heads, channels, B_SHARED, WIDE, ACC)
        total = tl.sum(left * right, 2)
    else:
        for first in range(0, channels, BLOCK_C):
            left = head_rows(
                a, row + one, one == 0, h, first + c, heads, channels, A_SHARED, WIDE, ACC
            )
            right = head_rows(b, place, live, h, first + c, heads, channels, B_SHARED, WIDE, ACC)
            total += tl.sum(left * right, 2)
    return total


@of_jobs
def sddmm_kernel(
    index, a, b, out, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks,
    SPLIT: tl.constexpr, A_SHARED: tl.constexpr, B_SHARED: tl.constexpr,
    ONE: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[e, h] = <a[row of e, h, :], b[index[e], h, :]>``."""
    channels = multiple(channels, LANES)
    number = tl.program_id(0) // head_blocks
    row, begin, end, _is_piece, _whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        total = dots(
            a, b, row, place, live, h, heads, channels,
            A_SHARED, B_SHARED, WIDE, ACC, ONE, BLOCK_E, BLOCK_H, BLOCK_C,
        )  # fmt: skip
        inside = live[:, None] & (h < heads)[None, :]
        tl.store(out + offset(e, heads, WIDE)[:, None] + h[None, :], total, mask=inside)


def sddmm(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute the dot product of row and column operands for each entry, (E, H)."""
    heads = b.size(1) if a.size(1) == 1 else a.size(1)
    out = a.new_empty((index.numel(), heads))
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    kinds = {"A_SHARED": a.size(1) == 1, "B_SHARED": b.size(1) == 1, "SPLIT": pieces is not None}
    wide = needs_int64(index, a, b, out)
    plan = _plan_of_samples(heads, a.size(2), a.dtype, **kinds, WIDE=wide)
    launch(plan, a, ptr, pieces, index, a, b, out)
    return out


@planned
def _plan_of_samples(heads: int, channels: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    blocks = tile(heads, channels, dtype)
    return plan(
        sddmm_kernel, dtype, blocks.head_blocks, (heads, channels, blocks.head_blocks),
        **kinds, **blocks.constants, ONE=blocks.channel_blocks == 1, LANES=lanes(dtype, channels),
    )  # fmt: skip
