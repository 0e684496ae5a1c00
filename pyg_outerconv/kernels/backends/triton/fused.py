"""Propagate and transform in one step: sums of each label are multiplied by Θ in registers.

A program computes 16 jobs together, and reads their entries in the order of labels. In each step it
takes the least label among the next entries of the jobs, and each job whose next entry has this
label reads that entry. When the label changes, the sums (16, P) are multiplied by its Θ, which is
so loaded once for 16 rows.

A GPU profile should show few steps without a product, and Θ read from L2 at most. The steps are a
chain of dependent loads, which only occupancy can hide.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from .addressing import (
    bounds,
    ceil_div,
    lanes,
    multiple,
    offset,
    power_of_two,
    row_tile,
    theta_tile,
)
from .balance import Plan, of_jobs, plan, planned
from .segments import sum_rows_of

JOBS = 16

# A number above every label.
NO_LABEL = tl.constexpr(2**31 - 1)


@triton.jit
def part_of(total, part, PARTS: tl.constexpr):
    """Of each row every PARTS-th number, from ``part`` on: a thread has the PARTS of a place."""
    if PARTS == 1:
        out = total
    else:
        size: tl.constexpr = total.shape[1] // PARTS
        mine = tl.arange(0, PARTS)[None, None, :] == part
        out = tl.sum(tl.where(mine, tl.reshape(total, [total.shape[0], size, PARTS]), 0.0), 2)
    return out


@of_jobs
def spmm_theta_kernel(
    index, label, value, x, theta, out, partial,
    jobs, ptr, piece_row, piece_begin, num_pieces, limit, inputs, outputs, blocks,
    SPLIT: tl.constexpr, HAS_VALUE: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr, PARTS: tl.constexpr, LANES_P: tl.constexpr, LANES_Q: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """``out[r] = sum_{e of row r} value[e] x[index[e]] theta[label[e]]``."""
    inputs, outputs = multiple(inputs, LANES_P), multiple(outputs, LANES_Q)
    number = (tl.program_id(0) // blocks) * BLOCK_R + tl.arange(0, BLOCK_R)
    row, begin, end, is_piece, whole = bounds(
        number, jobs, ptr, piece_row, piece_begin, num_pieces, limit, SPLIT
    )
    q = (tl.program_id(0) % blocks) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    result = tl.zeros([BLOCK_R, BLOCK_Q], ACC)
    for first in range(0, inputs, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        total = tl.zeros([BLOCK_R, BLOCK_P], ACC)
        e = begin
        ahead = tl.load(label + e, mask=e < end, other=NO_LABEL).to(tl.int32)
        now = tl.min(ahead, 0)
        while now < NO_LABEL:
            taken = ahead == now
            place = tl.load(index + e, mask=taken, other=0)
            rows = row_tile(x, place, taken, p, inputs, WIDE).to(ACC)
            if HAS_VALUE:
                rows *= tl.load(value + e, mask=taken, other=0.0).to(ACC)[:, None]
            total += rows
            e = tl.where(taken, e + 1, e)
            ahead = tl.load(label + e, mask=e < end, other=NO_LABEL).to(tl.int32)
            following = tl.min(ahead, 0)
            if following != now:
                for part in range(PARTS):
                    left = part_of(total, part, PARTS)
                    these = first + tl.arange(0, BLOCK_P // PARTS) * PARTS + part
                    matrix = theta_tile(theta, now, these, q, inputs, outputs, WIDE).to(ACC)
                    result = tl.dot(left, matrix, result, input_precision=PRECISION, out_dtype=ACC)
                total = tl.zeros([BLOCK_R, BLOCK_P], ACC)
            now = following
    inside = (q < outputs)[None, :]
    keep_rows = offset(row, outputs, WIDE)[:, None] + q[None, :]
    tl.store(out + keep_rows, result, mask=inside & whole[:, None])
    if SPLIT:
        slots = offset(number, outputs, WIDE)[:, None] + q[None, :]
        tl.store(partial + slots, result, mask=inside & is_piece[:, None])


def spmm_theta(
    ptr: Tensor,
    index: Tensor,
    label: Tensor,
    value: Tensor | None,
    x: Tensor,
    theta: Tensor,
) -> Tensor:
    """Propagate along labelled entries and multiply with Θ of their label, (R, Q)."""
    inputs, outputs = theta.size(1), theta.size(2)
    out = x.new_empty((ptr.numel() - 1, outputs))
    if out.numel() == 0:
        return out
    make_plan = partial(_plan, inputs, outputs, x.dtype, HAS_VALUE=value is not None)
    sum_rows_of(make_plan, x, ptr, index.size(0), out, index, label, value, x, theta)
    return out


@planned
def _plan(inputs: int, outputs: int, dtype: torch.dtype, **kinds: bool) -> Plan:
    block_p = min(32 if dtype == torch.float64 else 64, max(16, power_of_two(inputs)))
    block_q = min(64, max(16, power_of_two(outputs)))
    parts, warps = 1, 4
    if dtype == torch.float32:
        # Without tensor cores a thread holds columns of what is multiplied: of 16 inputs at a
        # time. So many warps that a thread loads 16 bytes of a row.
        parts, warps = block_p // 16, max(block_q // 16, min(block_p, block_q) // 8)
    more = dtype == torch.float64 or block_p < min(block_q, 32)
    most = 128 if more else 80 if warps == 8 else 96
    blocks = ceil_div(outputs, block_q)
    return plan(
        spmm_theta_kernel, dtype, blocks, (inputs, outputs, blocks), JOBS,
        **kinds,
        # Sums of 16-bit dtypes are float32, rounded to the 10 bits of TF32 for the product, which
        # these dtypes do not exceed. Sums of float32 are not rounded.
        PRECISION="tf32" if dtype in (torch.float16, torch.bfloat16) else "ieee",
        LANES_P=lanes(dtype, inputs), LANES_Q=lanes(dtype, outputs),
        BLOCK_R=JOBS, BLOCK_P=block_p, BLOCK_Q=block_q, PARTS=parts,
        num_warps=warps, maxnreg=most,
    )  # fmt: skip
