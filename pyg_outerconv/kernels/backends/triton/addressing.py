"""Addresses in memory: the job of a program, positions in 32 or 64 bits, tiles of rows and heads.

Positions are computed in 32 bits, which is twice as fast on a GPU, unless a tensor of the call has
more elements than 32 bits can count: :func:`needs_int64` decides, and :func:`offset` computes.

Rows are loaded 16 bytes at a time where the compiler sees that they begin at multiples of that.
Triton tells it which sizes are multiples of 16; :func:`lanes` and :func:`multiple` tell it more.
"""

from __future__ import annotations

from ctypes import c_float
from math import gcd
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tiles import accumulator

INT32_MAX = 2**31 - 1

FOLDS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 7)
"""Whether a thread adds up what it holds of a tile: Triton 3.6 moves that to others, and spills."""

MOST_CHANNELS = 128
"""The most channels of a block."""


def needs_int64(*tensors: Tensor | None) -> bool:
    """Whether one of the tensors has positions that a 32-bit integer cannot hold."""
    return max([0 if tensor is None else tensor.numel() for tensor in tensors]) > INT32_MAX


def wide_type(dtype: torch.dtype) -> tl.dtype:
    """The dtype in which a kernel accumulates sums of ``dtype``."""
    return tl.float64 if accumulator(dtype) == torch.float64 else tl.float32


def ceil_div(number: int, size: int) -> int:
    """How many blocks of that size hold so many."""
    return -(-number // size)


def power_of_two(number: int) -> int:
    """The least power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, number - 1).bit_length()


def halves(scale: float) -> tuple[float, float]:
    """Two numbers whose sum is ``scale``, because arguments of kernels are rounded to float32."""
    high = c_float(scale).value
    return high, scale - high


def lanes(dtype: torch.dtype, width: int) -> int:
    """How many numbers one load can read of rows that are ``width`` wide: 16 bytes at most."""
    return gcd(16 // dtype.itemsize, width)


class BlockSizes(NamedTuple):
    """Block sizes for entries × heads × channels, and how many blocks cover heads and channels.

    A thread of ``warps`` warps reads numbers of ``fold`` entries in a row of one tile.
    """

    entries: int
    heads: int
    channels: int
    head_blocks: int
    channel_blocks: int
    warps: int
    fold: int

    @property
    def parts(self) -> tuple[int, int]:
        """The numbers of blocks of heads and of channels."""
        return self.head_blocks, self.channel_blocks

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        sizes = {"BLOCK_E": self.entries, "BLOCK_H": self.heads, "BLOCK_C": self.channels}
        return {**sizes, "num_warps": self.warps}


def tile(
    heads: int, channels: int, dtype: torch.dtype, shared: bool = False, num_tiles: int = 1
) -> BlockSizes:
    """The block sizes for a product of that many heads and channels; they depend on shapes alone.

    A warp holds 1024 numbers in 32 registers of each thread, or 512 of float64; where a kernel
    holds several such tiles at a time, ``num_tiles``, as many warps share one. Heads that share
    rows of x get larger blocks, because the rows are loaded once for all heads of a block.
    """
    registers = 2 if dtype == torch.float64 else 1
    budget = (4096 if shared else 2048) // registers
    block_c = min(power_of_two(channels), MOST_CHANNELS)
    block_h = min(power_of_two(heads), max(1, budget // (16 * block_c)))
    block_e = 32 if block_c * block_h <= 16 else 16
    numbers = block_e * block_h * block_c
    warps = min(8, max(1, num_tiles * numbers * registers // 1024))
    of_thread = numbers // (32 * warps)
    return BlockSizes(
        block_e,
        block_h,
        block_c,
        max(1, ceil_div(heads, block_h)),
        max(1, ceil_div(channels, block_c)),
        warps,
        max(1, min(block_e, of_thread // lanes(dtype, channels))) if FOLDS else 1,
    )


def rows_together(width: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """The rows and entries of each that a program of narrow rows reads at a time, and its warps.

    A row of few numbers would leave most of a warp idle, and programs of one warp half of a
    processor: four warps read 512 numbers. Rows of more than 16 numbers come one by one.
    """
    registers = 2 if dtype == torch.float64 else 1
    block = power_of_two(width) * registers
    if block > 16:
        return 1, 0, 0
    rows = min(32, 64 // block)
    of_warp = 32 if dtype.itemsize == 2 else 16  # so that a thread loads 16 bytes at a time
    return rows, 8, max(1, rows * block // of_warp)


@triton.jit
def entries_of_rows(begin, end, step, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr):
    """The next entries of several rows, (rows × entries,), and which of them are theirs."""
    e = begin[:, None] + step + tl.arange(0, BLOCK_E)[None, :]
    live = e < end[:, None]
    return tl.reshape(e, [BLOCK_R * BLOCK_E]), tl.reshape(live, [BLOCK_R * BLOCK_E])


@triton.jit
def offset(position, stride, WIDE: tl.constexpr):
    """``position * stride``, in 64 bits if WIDE."""
    return position.to(tl.int64 if WIDE else tl.int32) * stride


@triton.jit
def multiple(width, LANES: tl.constexpr):
    """``width``, a multiple of LANES, in a form that shows this to the compiler."""
    return width // LANES * LANES


@triton.jit
def joined(high, low, ACC: tl.constexpr):
    """The sum of the two numbers of :func:`halves`."""
    return tl.full([], high, ACC) + tl.full([], low, ACC)


@triton.jit
def bounds(number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT: tl.constexpr):
    """Row, first entry and end of job ``number``; whether it is a piece, and whether a whole row.

    The pieces come first, because they are the longest jobs, then all rows, where long rows are
    empty jobs. ``number`` may be a block of numbers.
    """
    is_job = number < jobs
    if SPLIT:
        is_piece = number < num_pieces
        row = tl.load(piece_row + number, mask=is_piece, other=0)
        row = tl.where(is_piece, row, number - num_pieces)
        first = tl.load(ptr + row, mask=is_job, other=0)
        last = tl.load(ptr + row + 1, mask=is_job, other=0)
        whole = is_job & (number >= num_pieces) & (last - first <= limit)
        begin = tl.load(piece_begin + number, mask=is_piece, other=0)
        begin = tl.where(is_piece, begin, first)
        # Not begin + limit, which 32 bits may not hold.
        end = begin + tl.where(is_piece | whole, tl.minimum(limit, last - begin), 0)
    else:
        row = number
        begin = tl.load(ptr + row, mask=is_job, other=0)
        end = tl.load(ptr + row + 1, mask=is_job, other=0)
        is_piece = number < 0
        whole = is_job
    return row, begin, end, is_piece, whole


@triton.jit
def head_rows(
    x, place, live, h, c, heads, channels,
    SHARED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load ``x[place, h, c]``, (places, heads, channels), one head if SHARED; 0 where not live."""
    inside = live[:, None, None] & (c < channels)[None, None, :]
    if SHARED:
        where = offset(place, channels, WIDE)[:, None, None] + c[None, None, :]
        rows = tl.load(x + where, mask=inside, other=0.0)
    else:
        where = offset(place, heads * channels, WIDE)[:, None] + (h * channels)[None, :]
        where = where[:, :, None] + c[None, None, :]
        rows = tl.load(x + where, mask=inside & (h < heads)[None, :, None], other=0.0)
    return rows.to(ACC)


@triton.jit
def row_tile(x, rows, live, c, channels, WIDE: tl.constexpr):
    """Load ``x[rows, c]``; 0 where not live."""
    inside = live[:, None] & (c < channels)[None, :]
    return tl.load(x + offset(rows, channels, WIDE)[:, None] + c[None, :], mask=inside, other=0.0)


@triton.jit
def folded(term, FOLD: tl.constexpr):
    """The sums of FOLD parts of the first axis: of what a thread holds, if it holds so many."""
    if FOLD == 1:
        out = term
    else:
        size: tl.constexpr = term.shape[0] // FOLD
        out = tl.sum(tl.reshape(term, [FOLD, size, term.shape[1], term.shape[2]]), 0)
    return out


@triton.jit
def theta_tile(theta, number, p, q, inputs, outputs, WIDE: tl.constexpr):
    """Load ``theta[number, p, q]``, (p, q); 0 outside."""
    where = offset(number, inputs * outputs, WIDE) + (p * outputs)[:, None] + q[None, :]
    inside = (p < inputs)[:, None] & (q < outputs)[None, :]
    return tl.load(theta + where, mask=inside, other=0.0)


@triton.jit
def entry_heads(value, e, live, h, heads, WIDE: tl.constexpr, ACC: tl.constexpr):
    """Load ``value[e, h]``, (entries, heads); 0 where not live."""
    where = offset(e, heads, WIDE)[:, None] + h[None, :]
    inside = live[:, None] & (h < heads)[None, :]
    return tl.load(value + where, mask=inside, other=0.0).to(ACC)


@triton.jit
def keep_rows(
    out, partial, row, number, width, place, inside, is_piece, whole, result,
    SPLIT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """:func:`keep` for several rows, whose numbers are (rows, places)."""
    where = offset(row, width, WIDE)[:, None] + place[None, :]
    tl.store(out + where, result, mask=inside[None, :] & whole[:, None])
    if SPLIT:
        where = offset(number, width, WIDE)[:, None] + place[None, :]
        tl.store(partial + where, result, mask=inside[None, :] & is_piece[:, None])


@triton.jit
def keep(
    out, partial, row, number, width, place, inside, is_piece, whole, result,
    SPLIT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the ``width`` numbers of a row in ``out``, of a piece in ``partial``."""
    tl.store(out + offset(row, width, WIDE) + place, result, mask=inside & whole)
    if SPLIT:
        tl.store(partial + offset(number, width, WIDE) + place, result, mask=inside & is_piece)
