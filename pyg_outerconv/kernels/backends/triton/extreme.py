"""Max and min: the entry of the largest or least product of each row, and their gradients.

Every place of the tile (entries, heads, channels) stores its best product and the position of that;
the places are compared once, at the end. Pieces store both, and a second kernel compares them in
order. A GPU profile should look like that of ``spmm``, with twice the registers.

Gradients are sums over the entries that were chosen, which are gathered with the rows, as in
``spmm``. No position of a row is sorted, and nothing is atomic. A GPU profile should show gathers
of twice the bytes of ``spmm`` as the limit.
"""

from __future__ import annotations

from functools import partial
from math import prod

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
    head_rows,
    keep,
    lanes,
    multiple,
    needs_int64,
    offset,
    power_of_two,
    tile,
)
from .balance import Plan, launch, of_jobs, plan, planned
from .segments import empty_partial, sum_rows_of

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
    places = None if best is None else torch.empty_like(best, dtype=torch.int64)
    kinds = {"SHARED": x.size(1) == 1, "HAS_VALUE": value is not None, "LARGEST": largest}
    kinds |= {"SPLIT": pieces is not None, "WIDE": needs_int64(index, value, x, out, places)}
    of_rows, of_pieces = _plans(heads, channels, x.dtype, **kinds)
    launch(
        of_rows, x, ptr, pieces, index, x if value is None else value, x,
        out, out if places is None else places, out if best is None else best,
    )  # fmt: skip
    if pieces is not None:
        arguments = places, best, pieces.ptr, pieces.long, out
        of_pieces.start(pieces.long_rows, x, arguments)
    return out


@planned
def _plans(heads: int, channels: int, dtype: torch.dtype, **kinds: bool) -> tuple[Plan, Plan]:
    """Those of rows, and of the pieces of long ones."""
    blocks = tile(heads, channels, dtype, num_tiles=2)  # products and positions
    of_rows = plan(
        extreme_kernel, dtype, prod(blocks.parts), (heads, channels, *blocks.parts),
        **kinds, **blocks.constants, HIGHEST=torch.finfo(accumulator(dtype)).max,
        LANES=lanes(dtype, channels),
    )  # fmt: skip
    width = heads * channels
    block_w = min(power_of_two(width), 64)
    number = ceil_div(width, block_w)
    of_pieces = plan(
        extreme_pieces_kernel, dtype, number, (width, number),
        WIDE=kinds["WIDE"], BLOCK_T=8, BLOCK_W=block_w, num_warps=1,
    )  # fmt: skip
    return of_rows, of_pieces


# What was chosen ---------------------------------------------------------------------------------


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
    kinds = {"HAS_VALUE": value is not None, "SHARED": x.size(1) < arg.size(1)}
    wide = needs_int64(index, value, x, out)
    plan = _plan_of_products(arg.size(1), arg.size(2), x.dtype, **kinds, WIDE=wide)
    plan.start(out.numel(), x, (index, arg, x if value is None else value, x, out, out.numel()))
    return out


@planned
def _plan_of_products(heads: int, channels: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    sizes, block = (heads, channels), {"BLOCK_N": 1024, "num_warps": 4}
    return plan(chosen_kernel, dtype, 1, sizes, together=1024, **kinds, **block)


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
    kinds = {"HAS_PERM": perm is not None, "HAS_VALUE": value is not None}
    make_plan = partial(_plan_of_sums, heads, channels, x.dtype, **kinds)
    sum_rows_of(make_plan, x, ptr, index.size(0), out, index, perm, arg, value, x)
    return out


@planned
def _plan_of_sums(heads: int, channels: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    blocks = tile(heads, channels, dtype, num_tiles=2)
    return plan(
        chosen_sum_kernel, dtype, prod(blocks.parts), (heads, channels, *blocks.parts),
        **kinds, **blocks.constants, LANES=lanes(dtype, channels), FOLD=blocks.fold,
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
    kinds = {"SPLIT": pieces is not None, "HAS_PERM": perm is not None, "SHARED": b.size(1) < heads}
    wide = needs_int64(index, a, b, out)
    plan = _plan_of_samples(heads, channels, a.dtype, **kinds, WIDE=wide)
    launch(plan, a, ptr, pieces, index, index if perm is None else perm, arg, a, b, out)
    return out


@planned
def _plan_of_samples(heads: int, channels: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    blocks = tile(heads, channels, dtype, num_tiles=2)
    return plan(
        chosen_sample_kernel, dtype, blocks.head_blocks, (heads, channels, blocks.head_blocks),
        **kinds, **blocks.constants, LANES=lanes(dtype, channels),
    )  # fmt: skip
