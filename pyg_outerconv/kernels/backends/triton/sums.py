"""Sums within rows of (entries, width), and sums of the pieces of long rows.

A GPU profile should show almost the memory throughput of a copy; with one or two numbers for each
entry and few entries in a row, the number of programs is the limit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tiles import accumulator
from . import balance
from .addressing import bounds, keep, needs_int64, offset, power_of_two, wide_type
from .balance import Pieces
from .launch import jobs_of, launch


@triton.jit
def segment_sum_kernel(
    value, rows, out, partial, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    width, blocks,
    SPLIT: tl.constexpr, MAPPED: tl.constexpr, WIDE: tl.constexpr,
    ACC: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """``out[rows[r], w] = sum_{e of row r} value[e, w]``."""
    number = tl.program_id(0) // blocks
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    w = (tl.program_id(0) % blocks) * BLOCK_W + tl.arange(0, BLOCK_W)
    total = tl.zeros([BLOCK_E, BLOCK_W], ACC)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        inside = (e < end)[:, None] & (w < width)[None, :]
        where = offset(e, width, WIDE)[:, None] + w[None, :]
        total += tl.load(value + where, mask=inside, other=0.0).to(ACC)
    result = tl.sum(total, 0)
    if MAPPED:
        row = tl.load(rows + row)
    keep(out, partial, row, number, width, w, w < width, is_piece, whole, result, SPLIT, WIDE)


def segment_sum(ptr: Tensor, value: Tensor) -> Tensor:
    """Sum the values of each row, (R, H)."""
    out = value.new_empty((ptr.numel() - 1, value.size(1)))
    pieces = balance.pieces_of(ptr, value.size(0), balance.LIMIT)
    if pieces is None:
        _sum_rows(ptr, value, out)
        return out
    partial = value.new_empty((pieces.number, value.size(1)), dtype=accumulator(value.dtype))
    _sum_rows(ptr, value, out, pieces=pieces, partial=partial)
    add_pieces(pieces, partial, out)
    return out


def add_pieces(pieces: Pieces, partial: Tensor, out: Tensor) -> None:
    """Set the long rows of ``out`` (R, ...) to the sums of their pieces in ``partial`` (T, ...)."""
    _sum_rows(pieces.ptr, partial, out, rows=pieces.long)


def _sum_rows(
    ptr: Tensor,
    value: Tensor,
    out: Tensor,
    rows: Tensor | None = None,
    pieces: Pieces | None = None,
    partial: Tensor | None = None,
) -> None:
    width = out[0].numel() if out.size(0) else 0
    block_w = min(power_of_two(width), 128)
    blocks = triton.cdiv(width, block_w)
    jobs, job_arguments = jobs_of(ptr, pieces)
    launch(
        segment_sum_kernel, jobs * blocks, value,
        value, ptr if rows is None else rows, out, out if partial is None else partial,
        *job_arguments, width, blocks,
        SPLIT=pieces is not None, MAPPED=rows is not None,
        WIDE=needs_int64(value, out, partial), ACC=wide_type(value.dtype),
        BLOCK_E=max(8, 32 // block_w), BLOCK_W=block_w, num_warps=1,
    )  # fmt: skip


def empty_partial(pieces: Pieces | None, like: Tensor, *shape: int) -> Tensor | None:
    """Memory for the partial results of the pieces, (T, *shape) in the accumulating dtype."""
    if pieces is None:
        return None
    return torch.empty((pieces.number, *shape), dtype=accumulator(like.dtype), device=like.device)
