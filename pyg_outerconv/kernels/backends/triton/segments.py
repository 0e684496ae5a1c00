"""Sums and softmax within rows, and sums of the pieces of long rows.

A program reads several rows at a time where they are narrow. One of a softmax reads its rows twice:
first for the highest score and the sum of exponentials, then from a cache to write the shares.
Pieces of long rows store both numbers, a second kernel merges these for each row, and a third one
writes the shares of the pieces.

A GPU profile should show almost the memory throughput of a copy; with fewer than eight entries in a
row, lanes are idle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tiles import accumulator
from . import balance
from .addressing import (
    bounds,
    ceil_div,
    entries_of_rows,
    entry_heads,
    keep_rows,
    lanes,
    multiple,
    needs_int64,
    offset,
    power_of_two,
    row_tile,
    rows_together,
    tile,
)
from .balance import Pieces, Plan, launch, of_jobs, plan, planned


@of_jobs
def segment_sum_kernel(
    value, perm, rows, out, partial, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    width, blocks,
    SPLIT: tl.constexpr, HAS_PERM: tl.constexpr, MAPPED: tl.constexpr, WIDE: tl.constexpr,
    LANES: tl.constexpr, ACC: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """``out[rows[r], w] = sum_{e of row r} value[perm[e], w]``."""
    width = multiple(width, LANES)
    number = (tl.program_id(0) // blocks) * BLOCK_R + tl.arange(0, BLOCK_R)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    w = (tl.program_id(0) % blocks) * BLOCK_W + tl.arange(0, BLOCK_W)
    total = tl.zeros([BLOCK_R * BLOCK_E, BLOCK_W], ACC)
    for step in range(0, tl.max(end - begin, 0), BLOCK_E):
        e, live = entries_of_rows(begin, end, step, BLOCK_R, BLOCK_E)
        if HAS_PERM:
            e = tl.load(perm + e, mask=live, other=0)
        total += row_tile(value, e, live, w, width, WIDE).to(ACC)
    result = tl.sum(tl.reshape(total, [BLOCK_R, BLOCK_E, BLOCK_W]), 1)
    if MAPPED:
        row = tl.load(rows + row, mask=whole, other=-1)
        whole = whole & (row >= 0)
    keep_rows(out, partial, row, number, width, w, w < width, is_piece, whole, result, SPLIT, WIDE)


def segment_sum(ptr: Tensor, value: Tensor, perm: Tensor | None = None) -> Tensor:
    """Sum the values of each row, (R, H); entry e has the value ``perm[e]``."""
    out = value.new_empty((ptr.numel() - 1, value.size(1)))
    _sum_rows(ptr, value.size(0), value, out, perm)
    return out


def add_pieces(pieces: Pieces, partial: Tensor, out: Tensor) -> None:
    """Set the long rows of ``out`` (R, ...) to the sums of their pieces in ``partial`` (T, ...)."""
    _sum_rows(pieces.ptr, 0, partial, out, rows=pieces.long)


def sum_rows_of(
    make_plan: Callable[..., Plan],
    like: Tensor,
    ptr: Tensor,
    num_entries: int,
    out: Tensor,
    *operands: Tensor | None,
) -> None:
    """Run a kernel that sums within rows, and add up the pieces of long rows: ``out`` (R, ...).

    Args:
        make_plan: the plan of the kernel, given its kinds SPLIT and WIDE.
        like: an operand of the dtype of the sums.
        ptr: (R + 1,) the rows of the E entries.
        num_entries: E.
        out: the result.
        operands: the first arguments of the kernel, None for what it does not read.
    """
    pieces = balance.pieces_of(ptr, num_entries)
    sums = empty_partial(pieces, like, *out.shape[1:])
    plan = make_plan(SPLIT=pieces is not None, WIDE=needs_int64(out, sums, *operands))
    tensors = [like if one is None else one for one in operands]
    launch(plan, like, ptr, pieces, *tensors, out, out if sums is None else sums)
    if pieces is not None and sums is not None:
        add_pieces(pieces, sums, out)


def _sum_rows(
    ptr: Tensor,
    num_entries: int,
    value: Tensor,
    out: Tensor,
    perm: Tensor | None = None,
    rows: Tensor | None = None,
) -> None:
    kinds = {"HAS_PERM": perm is not None, "MAPPED": rows is not None}
    width = out.numel() // max(1, out.size(0))
    make_plan = partial(_plan_of_sums, width, value.dtype, **kinds)
    sum_rows_of(make_plan, value, ptr, num_entries, out, value, perm, rows)


@planned
def _plan_of_sums(width: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    block_w = min(power_of_two(width), 128)
    blocks = ceil_div(width, block_w)
    together, entries, warps = rows_together(width, dtype)
    return plan(
        segment_sum_kernel, dtype, blocks, (width, blocks), together,
        **kinds, LANES=lanes(dtype, width), BLOCK_R=together, BLOCK_E=entries or 8,
        BLOCK_W=block_w, num_warps=warps or 1,
    )  # fmt: skip


def empty_partial(pieces: Pieces | None, like: Tensor, *shape: int) -> Tensor | None:
    """Memory for the partial results of the pieces, (T, *shape) in the accumulating dtype."""
    if pieces is None or pieces.number == 0:
        return None
    return torch.empty((pieces.number, *shape), dtype=accumulator(like.dtype), device=like.device)


@triton.jit
def finite(high):
    """Replace -inf by 0, for -inf minus itself is NaN."""
    return tl.where(high == -float("inf"), 0.0, high)


@triton.jit
def merge(high, total, new_high, new_total):
    """Merge highest scores and sums of exp(score − highest), (rows, heads) with (…, places, …)."""
    top = tl.maximum(high, tl.max(new_high, 1))
    shift = finite(top)
    total = total * tl.exp(high - shift)
    return top, total + tl.sum(new_total * tl.exp(new_high - shift[:, None, :]), 1)


@triton.jit
def shares(score, high, total, begin, end, out, h, heads, WIDE: tl.constexpr, ACC: tl.constexpr,
           BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr):  # fmt: skip
    """Write ``exp(score[e, h] − high[r, h]) / total[r, h]`` of entries begin to end of each row."""
    shift = finite(high)
    divisor = tl.where(total == 0.0, 1.0, total)
    for step in range(0, tl.max(end - begin, 0), BLOCK_E):
        e, live = entries_of_rows(begin, end, step, BLOCK_R, BLOCK_E)
        scores = entry_heads(score, e, live, h, heads, WIDE, ACC)
        scores = tl.reshape(scores, [BLOCK_R, BLOCK_E, BLOCK_H])
        share = tl.exp(scores - shift[:, None, :]) / divisor[:, None, :]
        inside = live[:, None] & (h < heads)[None, :]
        where = offset(e, heads, WIDE)[:, None] + h[None, :]
        tl.store(out + where, tl.reshape(share, [BLOCK_R * BLOCK_E, BLOCK_H]), mask=inside)


@of_jobs
def softmax_kernel(
    score, out, partial_high, partial_total,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit, heads, head_blocks,
    SPLIT: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The shares of whole rows, and the highest score and the sum of each piece of long rows."""
    number = (tl.program_id(0) // head_blocks) * BLOCK_R + tl.arange(0, BLOCK_R)
    _row, begin, end, is_piece, _whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    high = tl.full([BLOCK_R, BLOCK_H], -float("inf"), ACC)
    total = tl.zeros([BLOCK_R, BLOCK_H], ACC)
    for step in range(0, tl.max(end - begin, 0), BLOCK_E):
        e, live = entries_of_rows(begin, end, step, BLOCK_R, BLOCK_E)
        scores = entry_heads(score, e, live, h, heads, WIDE, ACC)
        scores = tl.where(live[:, None], scores, -float("inf"))
        scores = tl.reshape(scores, [BLOCK_R, BLOCK_E, BLOCK_H])
        high, total = merge(high, total, scores, tl.full(scores.shape, 1.0, ACC))
    if SPLIT:
        slot = offset(number, heads, WIDE)[:, None] + h[None, :]
        inside = (h < heads)[None, :] & is_piece[:, None]
        tl.store(partial_high + slot, high, mask=inside)
        tl.store(partial_total + slot, total, mask=inside)
        end = tl.where(is_piece, begin, end)
    shares(score, high, total, begin, end, out, h, heads, WIDE, ACC, BLOCK_R, BLOCK_E, BLOCK_H)


@triton.jit
def merge_kernel(
    partial_high, partial_total, piece_ptr, high_out, total_out, heads, head_blocks,
    WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The highest score and the sum of each long row, from those of its pieces."""
    number = tl.program_id(0) // head_blocks
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    high = tl.full([1, BLOCK_H], -float("inf"), ACC)
    total = tl.zeros([1, BLOCK_H], ACC)
    end = tl.load(piece_ptr + number + 1)
    for start in range(tl.load(piece_ptr + number), end, BLOCK_T):
        piece = start + tl.arange(0, BLOCK_T)
        live = piece < end
        new_high = entry_heads(partial_high, piece, live, h, heads, WIDE, ACC)
        new_high = tl.where(live[:, None], new_high, -float("inf"))
        more = entry_heads(partial_total, piece, live, h, heads, WIDE, ACC)
        high, total = merge(high, total, new_high[None], more[None])
    slot = (offset(number, heads, WIDE) + h)[None, :]
    tl.store(high_out + slot, high, mask=(h < heads)[None, :])
    tl.store(total_out + slot, total, mask=(h < heads)[None, :])


@triton.jit
def piece_shares_kernel(
    score, out, ptr, piece_row, piece_begin, owner, high, total, limit, heads, head_blocks,
    WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The shares of the pieces, given the highest score and the sum of their rows."""
    number = tl.program_id(0) // head_blocks + tl.arange(0, 1)
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    slot = offset(tl.load(owner + number), heads, WIDE)[:, None] + h[None, :]
    inside = (h < heads)[None, :]
    row_high = tl.load(high + slot, mask=inside, other=0.0)
    row_total = tl.load(total + slot, mask=inside, other=1.0)
    begin = tl.load(piece_begin + number)
    last = tl.load(ptr + tl.load(piece_row + number) + 1)
    end = begin + tl.minimum(limit, last - begin)
    shares(score, row_high, row_total, begin, end, out, h, heads, WIDE, ACC, 1, BLOCK_E, BLOCK_H)


def segment_softmax(ptr: Tensor, score: Tensor) -> Tensor:
    """Normalise the scores of each row by a softmax, (E, H)."""
    heads = score.size(1)
    out = score.new_empty(score.shape)
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, score.size(0))
    high = empty_partial(pieces, score, heads)
    total = empty_partial(pieces, score, heads)
    kinds = {"SPLIT": pieces is not None, "WIDE": needs_int64(score)}
    first, *rest = _plans_of_softmax(heads, score.dtype, **kinds)
    launch(
        first, score, ptr, pieces,
        score, out, out if high is None else high, out if total is None else total,
    )  # fmt: skip
    if pieces is not None and high is not None and total is not None:
        _finish(ptr, pieces, score, high, total, out, *rest)
    return out


@planned
def _plans_of_softmax(heads: int, dtype: torch.dtype, **kinds: bool) -> tuple[Plan, ...]:
    """Those of rows and of pieces; to merge pieces; to write their shares."""
    blocks = tile(heads, 1, dtype)
    together, entries, warps = rows_together(blocks.heads, dtype)
    sizes, number, wide = (heads, blocks.head_blocks), blocks.head_blocks, kinds["WIDE"]
    of_pieces = {"BLOCK_H": blocks.heads, "num_warps": blocks.warps, "WIDE": wide}
    whole = plan(
        softmax_kernel, dtype, number, sizes, together,
        **kinds, BLOCK_R=together, BLOCK_E=entries or blocks.entries, BLOCK_H=blocks.heads,
        num_warps=warps or blocks.warps, maxnreg=80,
    )  # fmt: skip
    merged = plan(merge_kernel, dtype, number, sizes, **of_pieces, BLOCK_T=blocks.entries)
    written = plan(piece_shares_kernel, dtype, number, sizes, **of_pieces, BLOCK_E=blocks.entries)
    return whole, merged, written


def _finish(
    ptr: Tensor,
    pieces: Pieces,
    score: Tensor,
    high: Tensor,
    total: Tensor,
    out: Tensor,
    merged: Plan,
    written: Plan,
) -> None:
    """Merge the pieces of each long row, and write their shares."""
    rows = pieces.long_rows
    rows_high, rows_total = (high.new_empty((rows, score.size(1))) for _ in range(2))
    merged.start(rows, score, (high, total, pieces.ptr, rows_high, rows_total))
    cuts = pieces.row, pieces.begin, pieces.owner
    written.start(
        pieces.number, score, (score, out, ptr, *cuts, rows_high, rows_total, pieces.limit)
    )
