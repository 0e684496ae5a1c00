"""Sampled dense-dense products: one number for each entry and head.

A program loads the row of ``a`` of its job once, and reads the entries in tiles. Pieces of long
rows need no second kernel, because each entry has its own result.

A GPU profile should show the gathers of ``b`` as the limit, as in ``spmm``.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from . import balance
from .addressing import bounds, head_rows, needs_int64, offset, tile, wide_type
from .launch import jobs_of, launch


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


@triton.jit
def sddmm_kernel(
    index, a, b, out, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks,
    SPLIT: tl.constexpr, A_SHARED: tl.constexpr, B_SHARED: tl.constexpr,
    ONE: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[e, h] = <a[row of e, h, :], b[index[e], h, :]>``."""
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
    pieces = balance.pieces_of(ptr, index.numel(), balance.LIMIT)
    blocks = tile(heads, a.size(2), a.dtype)
    jobs, job_arguments = jobs_of(ptr, pieces)
    launch(
        sddmm_kernel, jobs * blocks.head_blocks, a,
        index, a, b, out, *job_arguments, heads, a.size(2), blocks.head_blocks,
        SPLIT=pieces is not None, A_SHARED=a.size(1) == 1, B_SHARED=b.size(1) == 1,
        ONE=blocks.channel_blocks == 1, WIDE=needs_int64(index, a, b, out),
        ACC=wide_type(a.dtype),
        BLOCK_E=blocks.entries, BLOCK_H=blocks.heads, BLOCK_C=blocks.channels,
        num_warps=blocks.warps,
    )  # fmt: skip
    return out
