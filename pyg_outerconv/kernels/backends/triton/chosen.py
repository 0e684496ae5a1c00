"""What max and min chose, and its gradients: sums over the entries that were chosen.

The entries that were chosen are gathered with the rows, as in ``spmm``. No position of a row is
sorted, and nothing is atomic.

A GPU profile should show gathers of twice the bytes of ``spmm`` as the limit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import balance
from .addressing import (
    bounds,
    entry_heads,
    folded,
    head_rows,
    keep,
    lanes,
    multiple,
    needs_int64,
    offset,
    tile,
    wide_type,
)
from .balance import Plan, launch, of_jobs, plan, planned
from .segments import add_pieces, empty_partial


@triton.jit
def chosen_by(arg, place, live, h, c, heads, channels, WIDE: tl.constexpr):
    """Load ``arg[place, h, c]``, (places, heads, channels); -1 where not live."""
    where = offset(place, heads * channels, WIDE)[:, None] + (h * channels)[None, :]
    where = where[:, :, None] + c[None, None, :]
    inside = live[:, None, None] & (h < heads)[None, :, None] & (c < channels)[None, None, :]
    return tl.load(arg + where, mask=inside, other=-1)


@of_jobs
def chosen_kernel(
    index, arg, value, x, out, jobs, heads, channels,
    HAS_VALUE: tl.constexpr, SHARED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """``out[r, h, c] = value[n, h] x[index[n], h, c]``, n = arg[r, h, c]; a job is one number."""
    i = offset(tl.program_id(0), BLOCK_N, WIDE) + tl.arange(0, BLOCK_N)
    n = tl.load(arg + i, mask=i < jobs, other=-1)
    h, c = (i // channels) % heads, i % channels
    place = tl.load(index + n, mask=n >= 0, other=0)
    if SHARED:
        where = offset(place, channels, WIDE) + c
    else:
        where = offset(place, heads * channels, WIDE) + h * channels + c
    product = tl.load(x + where, mask=n >= 0, other=0.0).to(ACC)
    if HAS_VALUE:
        at = offset(n, heads, WIDE) + h
        product *= tl.load(value + at, mask=n >= 0, other=0.0).to(ACC)
    tl.store(out + i, product, mask=i < jobs)


@of_jobs
def chosen_sum_kernel(
    index, perm, arg, value, x, out, partial,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks, channel_blocks,
    SPLIT: tl.constexpr, HAS_PERM: tl.constexpr, HAS_VALUE: tl.constexpr, WIDE: tl.constexpr,
    ACC: tl.constexpr, LANES: tl.constexpr, FOLD: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[r, h, c] = sum_{e of row r} value[n, h] x[index[e], h, c]`` where n was chosen."""
    channels = multiple(channels, LANES)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (h < heads)[:, None] & (c < channels)[None, :]
    total = tl.zeros([BLOCK_E // FOLD, BLOCK_H, BLOCK_C], ACC)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        if HAS_PERM:
            e = tl.load(perm + e, mask=live, other=0)
        best = chosen_by(arg, place, live, h, c, heads, channels, WIDE)
        chosen = best == e[:, None, None]
        # All of the row: loads of single numbers take longer than some that are not needed.
        rows = head_rows(x, place, live, h, c, heads, channels, False, WIDE, ACC)
        if HAS_VALUE:
            rows *= entry_heads(value, e, live, h, heads, WIDE, ACC)[:, :, None]
        total += folded(tl.where(chosen, rows, 0.0), FOLD)
    keep(
        out, partial, row, number, heads * channels, (h * channels)[:, None] + c[None, :], inside,
        is_piece, whole, tl.sum(total, 0), SPLIT, WIDE,
    )  # fmt: skip


@of_jobs
def chosen_sample_kernel(
    index, perm, arg, a, b, out, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks,
    SPLIT: tl.constexpr, HAS_PERM: tl.constexpr, SHARED: tl.constexpr, WIDE: tl.constexpr,
    ACC: tl.constexpr, LANES: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[n, h] = sum_c a[row, h, c] b[index[e], h, c]`` of the channels where n was chosen."""
    channels = multiple(channels, LANES)
    number = tl.program_id(0) // head_blocks
    row, begin, end, _is_piece, _whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    one = tl.arange(0, 1)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        if HAS_PERM:
            e = tl.load(perm + e, mask=live, other=0)
        total = tl.zeros([BLOCK_E, BLOCK_H], ACC)
        for first in range(0, channels, BLOCK_C):
            c = first + tl.arange(0, BLOCK_C)
            best = chosen_by(arg, row + one, one == 0, h, c, heads, channels, WIDE)
            above = head_rows(a, row + one, one == 0, h, c, heads, channels, False, WIDE, ACC)
            chosen = live[:, None, None] & (best == e[:, None, None])
            rows = head_rows(b, place, live, h, c, heads, channels, SHARED, WIDE, ACC)
            total += tl.sum(tl.where(chosen, above * rows, 0.0), 2)
        inside = live[:, None] & (h < heads)[None, :]
        tl.store(out + offset(e, heads, WIDE)[:, None] + h[None, :], total, mask=inside)


def chosen(index: Tensor, arg: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    """The products that were chosen, (R, H, channels)."""
    out = x.new_empty(arg.shape)
    if out.numel() == 0:
        return out
    kinds = value is not None, x.size(1) < arg.size(1), needs_int64(index, value, x, out)
    plan = _plan_of_products(arg.size(1), arg.size(2), x.dtype, *kinds)
    plan.start(out.numel(), x, (index, arg, x if value is None else value, x, out, out.numel()))
    return out


@planned
def _plan_of_products(
    heads: int, channels: int, dtype: torch.dtype, has_value: bool, shared: bool, wide: bool
) -> Plan:
    return plan(
        chosen_kernel, 1, (heads, channels), together=1024,
        HAS_VALUE=has_value, SHARED=shared, WIDE=wide, ACC=wide_type(dtype), BLOCK_N=1024,
        num_warps=4,
    )  # fmt: skip


def chosen_sum(
    ptr: Tensor,
    index: Tensor,
    perm: Tensor | None,
    arg: Tensor,
    value: Tensor | None,
    x: Tensor,
) -> Tensor:
    """Sum the rows of entries that were chosen, (R, H, channels)."""
    heads, channels = x.size(1), x.size(2)
    out = x.new_empty((ptr.numel() - 1, heads, channels))
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    partial = empty_partial(pieces, x, heads, channels)
    kinds = pieces is not None, perm is not None, value is not None
    wide = needs_int64(index, value, x, out, partial)
    launch(
        _plan_of_sums(heads, channels, x.dtype, *kinds, wide), x, ptr, pieces,
        index, index if perm is None else perm, arg, x if value is None else value, x,
        out, out if partial is None else partial,
    )  # fmt: skip
    if pieces is not None and partial is not None:
        add_pieces(pieces, partial, out)
    return out


@planned
def _plan_of_sums(
    heads: int,
    channels: int,
    dtype: torch.dtype,
    split: bool,
    has_perm: bool,
    has_value: bool,
    wide: bool,
) -> Plan:
    blocks = tile(heads, channels, dtype, held=2)
    parts = blocks.head_blocks, blocks.channel_blocks
    return plan(
        chosen_sum_kernel, parts[0] * parts[1], (heads, channels, *parts),
        SPLIT=split, HAS_PERM=has_perm, HAS_VALUE=has_value, WIDE=wide, ACC=wide_type(dtype),
        LANES=lanes(dtype, channels), FOLD=blocks.fold, BLOCK_E=blocks.entries,
        BLOCK_H=blocks.heads, BLOCK_C=blocks.channels, num_warps=blocks.warps,
    )  # fmt: skip


def chosen_sample(
    ptr: Tensor, index: Tensor, perm: Tensor | None, arg: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Compute dot products over the channels in which an entry was chosen, (E, H)."""
    heads, channels = a.size(1), a.size(2)
    out = a.new_empty((index.numel(), heads))
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    kinds = pieces is not None, perm is not None, b.size(1) < heads
    plan = _plan_of_samples(heads, channels, a.dtype, *kinds, needs_int64(index, a, b, out))
    launch(plan, a, ptr, pieces, index, index if perm is None else perm, arg, a, b, out)
    return out


@planned
def _plan_of_samples(
    heads: int,
    channels: int,
    dtype: torch.dtype,
    split: bool,
    has_perm: bool,
    shared: bool,
    wide: bool,
) -> Plan:
    blocks = tile(heads, channels, dtype, held=2)
    return plan(
        chosen_sample_kernel, blocks.head_blocks, (heads, channels, blocks.head_blocks),
        SPLIT=split, HAS_PERM=has_perm, SHARED=shared, WIDE=wide, ACC=wide_type(dtype),
        LANES=lanes(dtype, channels), BLOCK_E=blocks.entries, BLOCK_H=blocks.heads,
        BLOCK_C=blocks.channels, num_warps=blocks.warps,
    )  # fmt: skip
