"""Scores of a layer of neurons, and the sums of rows that their derivatives are made of.

A program computes one job for a block of heads: it adds the row of ``a`` to gathered tiles
(entries, heads, channels) of ``b``, and applies phi or a derivative of it in registers. A program
of the sums takes a block of channels besides; it computes phi and its next derivative at once, for
a gradient in an operand and one in its factor read the same numbers.

A GPU profile should show the gathers of ``b`` as the limit, as those of ``sddmm`` and ``spmm``.
"""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...activation import Activation, of_tanh
from ...backend import Neurons
from . import balance
from .addressing import (
    FOLDS,
    bounds,
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
    tile,
)
from .balance import Plan, launch, of_jobs, plan, planned
from .segments import add_pieces, empty_partial

# What a factor is: ones, one row for all rows of the matrix, or a row for each.
ONES, SHARED_ROW, EACH_ROW = (tl.constexpr(number) for number in range(3))


@triton.jit
def tanh(z, ACC: tl.constexpr):
    """The hyperbolic tangent, exact to a few roundings also where z is small."""
    # Near 0 a convergent of Lambert's continued fraction z / (1 + z² / (3 + z² / (5 + …))).
    square = z * z
    LAST: tl.constexpr = 5 if ACC.primitive_bitwidth == 32 else 8
    above, over = z, tl.zeros_like(z)
    below, under = tl.full(z.shape, 1.0, ACC), tl.full(z.shape, 1.0, ACC)
    for k in tl.static_range(2, LAST):
        above, over = (2 * k - 1) * above + square * over, above
        below, under = (2 * k - 1) * below + square * under, below
    small = tl.abs(z) < 0.5
    near = tl.where(small, above, 0.0) / tl.where(small, below, 1.0)
    power = tl.exp(-2.0 * tl.abs(z))
    far = (1.0 - power) / (1.0 + power)
    return tl.where(small, near, tl.where(z < 0, -far, far))


@triton.jit
def applied(
    z, low, slope, slope_low, NAME: tl.constexpr, ORDER: tl.constexpr,
    COEFFICIENTS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The derivative of order ORDER of phi at z; ``low`` is tanh(z), if phi is that."""
    if NAME == "tanh":
        out = tl.zeros_like(z)
        for k in tl.static_range(len(COEFFICIENTS)):
            out = out * low + COEFFICIENTS[k]
    elif NAME == "exp":
        out = tl.exp(z)
    elif NAME == "square":
        if ORDER == 0:
            out = z * z
        elif ORDER == 1:
            out = 2.0 * z
        else:
            out = tl.full(z.shape, 2.0 if ORDER == 2 else 0.0, ACC)
    else:
        below = joined(slope, slope_low, ACC)
        if ORDER == 0:
            out = tl.where(z > 0, z, z * below)
        elif ORDER == 1:
            out = tl.where(z > 0, tl.full(z.shape, 1.0, ACC), below)
        else:
            out = tl.zeros_like(z)
    return out


@triton.jit
def inner(z, NAME: tl.constexpr, ACC: tl.constexpr):
    """What all derivatives of phi are made of: tanh(z) if phi is that, else z."""
    return tanh(z, ACC) if NAME == "tanh" else z


@triton.jit
def multiplied(
    term, factor, place, live, h, c, heads, channels,
    FORM: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """``term`` times the rows of a factor at ``place``."""
    if FORM == SHARED_ROW:
        one = tl.arange(0, 1)
        rows = head_rows(factor, one, one == 0, h, c, heads, channels, False, WIDE, ACC)
        term = term * rows
    elif FORM == EACH_ROW:
        rows = head_rows(factor, place, live, h, c, heads, channels, False, WIDE, ACC)
        term = term * rows
    return term


@triton.jit
def neurons(
    a, b, left, right, row, place, live, h, c, heads, channels, slope, slope_low,
    NAME: tl.constexpr, ORDER: tl.constexpr, COEFFICIENTS: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """``sum_c left right phi(a[row, h, c] + b[place, h, c])`` of a block of channels."""
    one = tl.arange(0, 1)
    z = head_rows(b, place, live, h, c, heads, channels, False, WIDE, ACC)
    z += head_rows(a, row + one, one == 0, h, c, heads, channels, False, WIDE, ACC)
    term = applied(z, inner(z, NAME, ACC), slope, slope_low, NAME, ORDER, COEFFICIENTS, ACC)
    term = multiplied(
        term, left, row + one, one == 0, h, c, heads, channels, LEFT, WIDE, ACC
    )  # fmt: skip
    term = multiplied(term, right, place, live, h, c, heads, channels, RIGHT, WIDE, ACC)
    return tl.sum(tl.where((c < channels)[None, None, :], term, 0.0), 2)


@of_jobs
def additive_kernel(
    index, a, b, left, right, out, jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks, slope, slope_low,
    NAME: tl.constexpr, ORDER: tl.constexpr, COEFFICIENTS: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SPLIT: tl.constexpr, ONE: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[e, h] = sum_c left right phi(a[row of e, h, c] + b[index[e], h, c])``."""
    channels = multiple(channels, LANES)
    number = tl.program_id(0) // head_blocks
    row, begin, end, _is_piece, _whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.arange(0, BLOCK_C)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        if ONE:  # without a loop over channels, rows of a and left are loaded once
            total = neurons(
                a, b, left, right, row, place, live, h, c, heads, channels, slope, slope_low,
                NAME, ORDER, COEFFICIENTS, LEFT, RIGHT, WIDE, ACC,
            )  # fmt: skip
        else:
            total = tl.zeros([BLOCK_E, BLOCK_H], ACC)
            for first in range(0, channels, BLOCK_C):
                total += neurons(
                    a, b, left, right, row, place, live, h, first + c, heads, channels,
                    slope, slope_low, NAME, ORDER, COEFFICIENTS, LEFT, RIGHT, WIDE, ACC,
                )  # fmt: skip
        inside = live[:, None] & (h < heads)[None, :]
        tl.store(out + offset(e, heads, WIDE)[:, None] + h[None, :], total, mask=inside)


@of_jobs
def additive_rows_kernel(
    index, a, b, right, value, out, next_out, partial, next_partial,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit,
    heads, channels, head_blocks, channel_blocks, slope, slope_low,
    NAME: tl.constexpr, ORDER: tl.constexpr, COEFFICIENTS: tl.constexpr,
    NEXT_COEFFICIENTS: tl.constexpr, TWO: tl.constexpr, RIGHT: tl.constexpr,
    SPLIT: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
    FOLD: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``out[r, h, c] = sum_{e of row r} value[e, h] right phi(a[r, h, c] + b[index[e], h, c])``.

    If TWO, ``next_out`` holds the sums with the next derivative of phi.
    """
    channels = multiple(channels, LANES)
    block = tl.program_id(0) % (head_blocks * channel_blocks)
    number = tl.program_id(0) // (head_blocks * channel_blocks)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    h = (block // channel_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = (block % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    one = tl.arange(0, 1)
    near = head_rows(a, row + one, one == 0, h, c, heads, channels, False, WIDE, ACC)
    total = tl.zeros([BLOCK_E // FOLD, BLOCK_H, BLOCK_C], ACC)
    if TWO:
        following = tl.zeros([BLOCK_E // FOLD, BLOCK_H, BLOCK_C], ACC)
    for start in range(begin, end, BLOCK_E):
        e = start + tl.arange(0, BLOCK_E)
        live = e < end
        place = tl.load(index + e, mask=live, other=0)
        z = near + head_rows(b, place, live, h, c, heads, channels, False, WIDE, ACC)
        weight = entry_heads(value, e, live, h, heads, WIDE, ACC)[:, :, None]
        weight = multiplied(weight, right, place, live, h, c, heads, channels, RIGHT, WIDE, ACC)
        low = inner(z, NAME, ACC)
        # Not 0 · phi where an entry is none, for phi of the row alone may be infinite.
        here = live[:, None, None]
        term = applied(z, low, slope, slope_low, NAME, ORDER, COEFFICIENTS, ACC)
        total += folded(tl.where(here, weight * term, 0.0), FOLD)
        if TWO:
            term = applied(z, low, slope, slope_low, NAME, ORDER + 1, NEXT_COEFFICIENTS, ACC)
            following += folded(tl.where(here, weight * term, 0.0), FOLD)
    inside = (h < heads)[:, None] & (c < channels)[None, :]
    where = (h * channels)[:, None] + c[None, :]
    width = heads * channels
    keep(
        out, partial, row, number, width, where, inside, is_piece, whole, tl.sum(total, 0),
        SPLIT, WIDE,
    )  # fmt: skip
    if TWO:
        keep(
            next_out, next_partial, row, number, width, where, inside, is_piece, whole,
            tl.sum(following, 0), SPLIT, WIDE,
        )  # fmt: skip


def coefficients(phi: Activation) -> tuple[float, ...]:
    """Those of a derivative of tanh as a polynomial of tanh, the highest first; else none."""
    return tuple(map(float, reversed(of_tanh(phi.order)))) if phi.name == "tanh" else ()


def num_tiles(phi: Activation, dtype: torch.dtype) -> int:
    """How many tiles a program holds: exp and tanh in float64 take registers of several."""
    return 4 if dtype == torch.float64 and phi.name in ("tanh", "exp") else 1


def form(factor: Tensor | None) -> int:
    """Whether a factor is ones, one row for all rows, or a row for each."""
    if factor is None:
        return ONES.value
    return SHARED_ROW.value if factor.size(0) == 1 else EACH_ROW.value


def additive(ptr: Tensor, index: Tensor, layer: Neurons) -> Tensor:
    """Compute the additive score of each entry, (E, H)."""
    a, b, left, right, phi = layer
    heads, channels = a.size(1), a.size(2)
    out = a.new_empty((index.numel(), heads))
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    kinds = {"SPLIT": pieces is not None, "LEFT": form(left), "RIGHT": form(right)}
    kinds["WIDE"] = needs_int64(index, a, b, out)
    launch(
        _plan_of_scores(heads, channels, a.dtype, phi, **kinds), a, ptr, pieces,
        index, a, b, a if left is None else left, b if right is None else right, out,
    )  # fmt: skip
    return out


@planned
def _plan_of_scores(
    heads: int, channels: int, dtype: torch.dtype, phi: Activation, **kinds: int
) -> Plan:
    blocks = tile(heads, channels, dtype, num_tiles=num_tiles(phi, dtype))
    return plan(
        additive_kernel, dtype, blocks.head_blocks,
        (heads, channels, blocks.head_blocks, *halves(phi.slope)),
        **kinds, **blocks.constants, NAME=phi.name, ORDER=phi.order,
        COEFFICIENTS=coefficients(phi), ONE=blocks.channel_blocks == 1,
        LANES=lanes(dtype, channels),
    )  # fmt: skip


def additive_rows(ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor, count: int) -> Tensor:
    """Sum the weighted terms of additive scores within rows, (count, R, H, channels)."""
    a, b, _, right, phi = layer
    heads, channels = a.size(1), a.size(2)
    out = a.new_empty((count, *a.shape))
    if out.numel() == 0:
        return out
    pieces = balance.pieces_of(ptr, index.size(0))
    kinds = {"SPLIT": pieces is not None, "RIGHT": form(right)}
    kinds["WIDE"] = needs_int64(index, a, b, out)
    every = out.unbind(0)
    for number in range(0, count, 2):
        outs = every[number : number + 2]
        kinds["TWO"] = len(outs) == 2
        partials = [empty_partial(pieces, a, heads, channels) for _ in outs]
        stored = [o if p is None else p for o, p in zip(outs, partials, strict=True)]
        launch(
            _plan_of_rows(heads, channels, a.dtype, phi.after(number), **kinds), a, ptr, pieces,
            index, a, b, b if right is None else right, value,
            outs[0], outs[-1], stored[0], stored[-1],
        )  # fmt: skip
        for partial, one in zip(partials, outs, strict=True):
            if pieces is not None and partial is not None:
                add_pieces(pieces, partial, one)
    return out


@planned
def _plan_of_rows(
    heads: int, channels: int, dtype: torch.dtype, phi: Activation, **kinds: int
) -> Plan:
    # Two sums; of 16-bit numbers a thread reads twice as many, to ask for as many bytes.
    sums = 1 if dtype.itemsize == 2 and FOLDS else 2
    blocks = tile(heads, channels, dtype, num_tiles=sums * num_tiles(phi, dtype))
    return plan(
        additive_rows_kernel, dtype, prod(blocks.parts),
        (heads, channels, *blocks.parts, *halves(phi.slope)),
        **kinds, **blocks.constants, NAME=phi.name, ORDER=phi.order,
        COEFFICIENTS=coefficients(phi), NEXT_COEFFICIENTS=coefficients(phi.after(1)),
        LANES=lanes(dtype, channels), FOLD=blocks.fold, maxnreg=96 if FOLDS else 128,
    )  # fmt: skip
