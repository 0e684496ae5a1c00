"""The backend of torch's own CSR kernels, which holds no tensor of entries × channels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import tiles
from ..backend import PRIMITIVES, Backend, Groups, Request
from ..tiles import accumulator, repeated
from . import tiled_additive
from .native_csr import row_sums, sampled, times, torch_csr

# exp of scores up to this absolute value neither overflows nor underflows in float32, also when
# summed up, so that the highest score of each row need not be subtracted.
_SAFE_SCORE = 60.0


def _row_shifts(ptr: Tensor, score: Tensor) -> Tensor | None:
    """The number to subtract in each row so that exp does not overflow; None if none is needed."""
    if score.numel() == 0:
        return None
    # On CUDA the comparison would wait for the device.
    if not score.is_cuda and float(score.abs().max()) <= _SAFE_SCORE:
        return None
    highest = row_sums(ptr, score, "max")
    return highest.masked_fill(highest == -torch.inf, 0.0)


# Products of groups of rows: by one kernel of torch where it has one, else group by group ---------

# Of torch 2.10 and later.
_of_all_groups: Any = getattr(F, "grouped_mm", None)

GROUPS = 1023
"""The most groups that torch's kernel takes."""


def is_one_kernel(x: Tensor, number: int, theta_size: torch.Size) -> bool:
    """Whether torch multiplies all groups by one kernel, which reads where they begin on a GPU.

    It does in bfloat16 on an H100 or a B200 (compute capability 9 or 10), if rows begin at
    multiples of 16 bytes. Else it would read the pointers, and multiply group by group, as we do.
    """
    groups, inputs, outputs = theta_size
    return (
        x.is_cuda
        and x.dtype == torch.bfloat16
        and _of_all_groups is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(x.device)[0] in (9, 10)
        and inputs % 8 == outputs % 8 == 0 < min(inputs, outputs)
        and 0 < groups <= GROUPS
        and 0 < number < 2**31
    )


def grouped_matmul(x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
    """Multiply the rows of each group with its matrix, (num_rows, Q)."""
    ptr, gather, scatter, num_rows = groups
    if is_one_kernel(x, groups.num_products(x), theta.shape):
        return _by_one_kernel(x, theta, groups)
    if scatter is None:
        out = x.new_empty((num_rows, theta.size(2)))
    else:  # Rows of several groups are added up, in the accumulating dtype.
        out = x.new_zeros((num_rows, theta.size(2)), dtype=accumulator(x.dtype))
    for group, tile in _tiles(ptr, theta.size(1) + theta.size(2)):
        rows = x[tile] if gather is None else x.index_select(0, gather[tile])
        if scatter is None:
            torch.mm(rows, theta[group], out=out[tile])
        else:
            product = torch.mm(rows, theta[group]).to(out.dtype)
            out.index_add_(0, scatter[tile].long(), product)
    return out.to(x.dtype)


def _by_one_kernel(x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
    """:func:`grouped_matmul` without a look at the pointers."""
    ptr, gather, scatter, num_rows = groups
    rows = x if gather is None else x.index_select(0, gather)
    products = _of_all_groups(_aligned(rows), _aligned(theta), offs=ptr[1:].int())
    if scatter is None:
        more = num_rows - rows.size(0)
        return F.pad(products, (0, 0, 0, more)) if more else products
    # Sorted, for torch adds at repeated positions with atomics, in any order.
    place, order = scatter.sort(stable=True)
    bounds = torch.arange(num_rows + 1, dtype=place.dtype, device=place.device)
    ordered = products.index_select(0, order).to(accumulator(x.dtype))
    return row_sums(torch.searchsorted(place, bounds), ordered).to(x.dtype)


def grouped_outer(x: Tensor, y: Tensor, groups: Groups) -> Tensor:
    """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
    ptr, gather, scatter, _ = groups
    size = torch.Size((ptr.numel() - 1, x.size(1), y.size(1)))
    if is_one_kernel(x, groups.num_products(x), size):
        left = x if gather is None else x.index_select(0, gather)
        right = y[: left.size(0)] if scatter is None else y.index_select(0, scatter)
        sums = _of_all_groups(_aligned(left).t(), _aligned(right), offs=ptr[1:].int())
        return sums.masked_fill_((ptr.diff() == 0).view(-1, 1, 1), 0.0)  # type: ignore[no-any-return]
    wide = accumulator(x.dtype)
    out = x.new_zeros(size, dtype=wide)
    for group, tile in _tiles(ptr, x.size(1) + y.size(1)):
        left = x[tile] if gather is None else x.index_select(0, gather[tile])
        right = y[tile] if scatter is None else y.index_select(0, scatter[tile])
        out[group].addmm_(left.t().to(wide), right.to(wide))
    return out.to(x.dtype)


def _aligned(x: Tensor) -> Tensor:
    """``x``, or a copy of it that begins at a multiple of 16 bytes."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _tiles(ptr: Tensor, width: int) -> Iterator[tuple[int, slice]]:
    """Split the rows of each group into tiles: the group, and the rows of the tile."""
    step = max(1, tiles.TILE_ELEMENTS // max(1, width))
    bounds = ptr.tolist()
    for group, (start, end) in enumerate(pairwise(bounds)):
        for first in range(start, end, step):
            yield group, slice(first, min(first + step, end))


class Native(Backend):
    """CSR products of torch (MKL or its own kernels on a CPU, cuSPARSE on CUDA)."""

    name = "native"
    priority = 10
    devices = frozenset({"cpu", "cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"additive"}
    deterministic = frozenset({"cpu"})  # cuSPARSE adds long rows in an order of its own
    tolerance = 1e-5

    def remarks(self) -> list[str]:
        """Remarks on this backend for the table of backends."""
        remarks = []
        if not torch.backends.mkl.is_available():
            remarks += [
                "this torch has no MKL; its own CSR products serve, about three times slower"
            ]
        if torch.cuda.is_available():
            remarks += ["cuSPARSE's products may have other bits each time, on CUDA"]
        return remarks

    def why_not(self, request: Request) -> list[str]:
        """Reasons why this backend cannot serve a request: torch has max and min on a CPU alone."""
        reasons = super().why_not(request)
        if request.device != "cpu" and request.reduction in ("max", "min"):
            reasons.append(f"reduces with {request.reduction} on cpu only")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        heads = x.size(1) if value is None else value.size(1)
        if value is None:
            matrix = torch_csr(ptr, index, x.new_ones(index.numel()), x.size(0))
            out = times(matrix, x.flatten(1))
            return out.resize_(out.size(0), *x.shape[1:])  # a view could not be changed in place
        if heads == 1:
            matrix = torch_csr(ptr, index, value.view(-1), x.size(0))
            return times(matrix, x.squeeze(1)).unsqueeze_(1)
        out = x.new_empty((ptr.numel() - 1, heads, x.size(2)))
        for head in range(heads):
            matrix = torch_csr(ptr, index, value[:, head].contiguous(), x.size(0))
            out[:, head] = times(matrix, x[:, head if x.size(1) > 1 else 0].contiguous())
        return out

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        heads = x.size(1) if value is None else value.size(1)
        out = torch.empty((ptr.numel() - 1, heads, x.size(2)), dtype=torch.int64, device=x.device)
        for head in range(heads):
            values = x.new_ones(index.numel()) if value is None else value[:, head].contiguous()
            matrix = torch_csr(ptr, index, values, x.size(0))
            column = x[:, head if x.size(1) > 1 else 0].contiguous()
            out[:, head] = _winning_entries(matrix, column, "amax" if largest else "amin")
        return out

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        heads = max(a.size(1), b.size(1))
        if heads == 1:
            return sampled(ptr, index, a.squeeze(1), b.squeeze(1)).unsqueeze_(1)
        out = a.new_empty((index.numel(), heads))
        for head in range(heads):
            left = a[:, head if a.size(1) > 1 else 0].contiguous()
            right = b[:, head if b.size(1) > 1 else 0].contiguous()
            out[:, head] = sampled(ptr, index, left, right)
        return out

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        return row_sums(ptr, value.to(accumulator(value.dtype))).to(value.dtype)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        wide = score.to(accumulator(score.dtype))
        shift = _row_shifts(ptr, wide)
        weight = wide.exp() if shift is None else (wide - repeated(shift, ptr, len(score))).exp_()
        total = row_sums(ptr, weight)
        total.masked_fill_(total == 0, 1.0)
        return weight.div_(repeated(total, ptr, score.size(0))).to(score.dtype)

    additive_backward = staticmethod(tiled_additive.backward)
    additive = staticmethod(tiled_additive.score)
    additive_rows = staticmethod(tiled_additive.rows_by(tiled_additive.sum_by_product))
    grouped_matmul = staticmethod(grouped_matmul)
    grouped_outer = staticmethod(grouped_outer)


def _winning_entries(matrix: Tensor, x: Tensor, aggr: str) -> Tensor:
    """The entry of the extreme product of each row, (R, channels) int64; -1 without entries."""
    entries = matrix.values().numel()
    if entries == 0 or x.size(1) == 0:
        return torch.full((matrix.size(0), x.size(1)), -1, device=x.device)
    # torch returns the entries only if gradients are required.
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        _, arg = torch.ops.aten._sparse_mm_reduce_impl(matrix, leaf, aggr)
    # torch finds no entry in rows whose products are all -inf, which are equal: take the first.
    ptr = matrix.crow_indices()
    first = torch.where(ptr.diff() > 0, ptr[:-1], -1).unsqueeze(-1)
    return torch.where(arg == entries, first, arg).to(torch.int64)
