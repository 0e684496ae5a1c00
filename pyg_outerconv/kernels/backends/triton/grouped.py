"""Products of groups of rows with a matrix for each group, and the gradient in the matrices.

Groups are cut into tiles of rows, so that each program has one matrix. If results are scattered,
several products may go to one row: the products are then added by ``spmm`` in the order of their
groups. The gradient in a matrix is cut along the rows of its group.

Products of float32 are computed in float32 ("ieee"), never in TF32. A GPU profile should show busy
tensor cores in 16-bit dtypes, and busy FMA units in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import Groups
from ...tiles import accumulator
from . import balance
from .addressing import (
    ceil_div,
    lanes,
    multiple,
    needs_int64,
    offset,
    power_of_two,
    row_tile,
    theta_tile,
)
from .balance import Plan, plan, planned
from .products import spmm
from .segments import add_pieces


@triton.jit
def grouped_matmul_kernel(
    x, theta, gather, out, ptr, piece_group, piece_begin, inputs, outputs, blocks,
    HAS_GATHER: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    LANES_P: tl.constexpr, LANES_Q: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """``out[i] = x[gather[i]] theta[group of i]``, for a tile of rows of one group."""
    inputs, outputs = multiple(inputs, LANES_P), multiple(outputs, LANES_Q)
    number = tl.program_id(0) // blocks
    group = tl.load(piece_group + number)
    i = tl.load(piece_begin + number) + tl.arange(0, BLOCK_M)
    live = i < tl.load(ptr + group + 1)
    rows = tl.load(gather + i, mask=live, other=0) if HAS_GATHER else i
    q = (tl.program_id(0) % blocks) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    result = tl.zeros([BLOCK_M, BLOCK_Q], ACC)
    for first in range(0, inputs, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        left = row_tile(x, rows, live, p, inputs, WIDE)
        right = theta_tile(theta, group, p, q, inputs, outputs, WIDE)
        result = tl.dot(left, right, result, input_precision="ieee", out_dtype=ACC)
    where = offset(i, outputs, WIDE)[:, None] + q[None, :]
    tl.store(out + where, result, mask=live[:, None] & (q < outputs)[None, :])


@triton.jit
def grouped_outer_kernel(
    x, y, gather, scatter, partial, ptr, piece_group, piece_begin, limit,
    inputs, outputs, p_blocks, q_blocks,
    HAS_GATHER: tl.constexpr, HAS_SCATTER: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    LANES_P: tl.constexpr, LANES_Q: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """``partial[t] = sum_{i of piece t} x[gather[i]]^T y[scatter[i]]``."""
    inputs, outputs = multiple(inputs, LANES_P), multiple(outputs, LANES_Q)
    block = tl.program_id(0) % (p_blocks * q_blocks)
    number = tl.program_id(0) // (p_blocks * q_blocks)
    p = (block // q_blocks) * BLOCK_P + tl.arange(0, BLOCK_P)
    q = (block % q_blocks) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    begin = tl.load(piece_begin + number)
    last = tl.load(ptr + tl.load(piece_group + number) + 1)
    end = begin + tl.minimum(limit, last - begin)
    result = tl.zeros([BLOCK_P, BLOCK_Q], ACC)
    for start in range(begin, end, BLOCK_M):
        i = start + tl.arange(0, BLOCK_M)
        live = i < end
        left = tl.load(gather + i, mask=live, other=0) if HAS_GATHER else i
        right = tl.load(scatter + i, mask=live, other=0) if HAS_SCATTER else i
        a = row_tile(x, left, live, p, inputs, WIDE)
        b = row_tile(y, right, live, q, outputs, WIDE)
        result = tl.dot(tl.trans(a), b, result, input_precision="ieee", out_dtype=ACC)
    where = offset(number, inputs * outputs, WIDE) + (p * outputs)[:, None] + q[None, :]
    tl.store(partial + where, result, mask=(p < inputs)[:, None] & (q < outputs)[None, :])


def blocks_of(dtype: torch.dtype, channels: int) -> int:
    """The number of channels in a block of a product, at least 16."""
    most = {torch.float64: 32, torch.float32: 64}.get(dtype, 128)
    return min(most, max(16, power_of_two(channels)))


def rows_of(dtype: torch.dtype) -> int:
    """The number of rows in a tile of a product; more for dtypes that tensor cores multiply."""
    return {torch.float64: 32, torch.float32: 32}.get(dtype, 64)


def registers_of(dtype: torch.dtype) -> int | None:
    """The most registers of a thread, for dtypes that tensor cores multiply; else None."""
    return None if dtype == torch.float32 else 128


def grouped_matmul(x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
    """Multiply the rows of each group with its matrix, (num_rows, Q)."""
    ptr, gather, scatter, num_rows = groups
    outputs, num_products = theta.size(2), groups.num_products(x)
    if scatter is None:
        make = x.new_empty if num_products == num_rows else x.new_zeros
        out = make((num_rows, outputs))
        _products(x, ptr, theta, gather, out, num_products)
        return out
    wide = torch.empty((num_products, outputs), dtype=accumulator(x.dtype), device=x.device)
    _products(x, ptr, theta, gather, wide, num_products)
    row_ptr, order = balance.by_row(scatter, num_rows)
    return spmm(row_ptr, order, None, wide.unsqueeze(1), like=x).squeeze(1)


def _products(
    x: Tensor, ptr: Tensor, theta: Tensor, gather: Tensor | None, out: Tensor, number: int
) -> None:
    """Write the product of each row with the matrix of its group into ``out`` (I, Q)."""
    pieces = balance.pieces_of(ptr, number, rows_of(x.dtype), above=0)
    if pieces is None:
        return
    kinds = {"HAS_GATHER": gather is not None, "WIDE": needs_int64(x, theta, gather, out)}
    _plan_of_products(theta.size(1), theta.size(2), x.dtype, **kinds).start(
        pieces.number, x,
        (x, theta, ptr if gather is None else gather, out, ptr, pieces.row, pieces.begin),
    )  # fmt: skip


@planned
def _plan_of_products(inputs: int, outputs: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    block_q = blocks_of(dtype, outputs)
    blocks = ceil_div(outputs, block_q)
    return plan(
        grouped_matmul_kernel, dtype, blocks, (inputs, outputs, blocks), **kinds,
        LANES_P=lanes(dtype, inputs), LANES_Q=lanes(dtype, outputs),
        BLOCK_M=rows_of(dtype), BLOCK_P=min(32, blocks_of(dtype, inputs)),
        BLOCK_Q=block_q, num_warps=4, maxnreg=registers_of(dtype),
    )  # fmt: skip


def grouped_outer(x: Tensor, y: Tensor, groups: Groups) -> Tensor:
    """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
    ptr, gather, scatter, _ = groups
    inputs, outputs, num_products = x.size(1), y.size(1), groups.num_products(x)
    out = x.new_zeros((ptr.numel() - 1, inputs, outputs))
    # About 512 pieces keep a GPU busy; longer pieces mean fewer partial matrices.
    limit = min(4096, max(balance.LIMIT, power_of_two(num_products // 512)))
    pieces = balance.pieces_of(ptr, num_products, limit, above=0)
    if pieces is None or out.numel() == 0:
        return out
    partial = torch.empty(
        (pieces.number, inputs, outputs), dtype=accumulator(x.dtype), device=x.device
    )
    kinds = {"HAS_GATHER": gather is not None, "HAS_SCATTER": scatter is not None}
    kinds["WIDE"] = needs_int64(x, y, gather, scatter, partial)
    _plan_of_outer(inputs, outputs, x.dtype, **kinds).start(
        pieces.number, x,
        (x, y, ptr if gather is None else gather, ptr if scatter is None else scatter,
         partial, ptr, pieces.row, pieces.begin, pieces.limit),
    )  # fmt: skip
    add_pieces(pieces, partial, out)
    return out


@planned
def _plan_of_outer(inputs: int, outputs: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    block_p, block_q = (min(64, blocks_of(dtype, width)) for width in (inputs, outputs))
    parts = ceil_div(inputs, block_p), ceil_div(outputs, block_q)
    return plan(
        grouped_outer_kernel, dtype, parts[0] * parts[1], (inputs, outputs, *parts), **kinds,
        LANES_P=lanes(dtype, inputs), LANES_Q=lanes(dtype, outputs),
        BLOCK_M=32, BLOCK_P=block_p, BLOCK_Q=block_q, num_warps=4, maxnreg=registers_of(dtype),
    )  # fmt: skip
