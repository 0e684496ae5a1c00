"""torch's own CSR kernels: no tensor of entries × channels is ever held."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backend import PRIMITIVES, Backend, Request
from ..tiles import accumulator
from . import native_attend, native_grouped, tiled_additive
from .native_csr import csr, row_sums, sampled, spread, times


class Native(Backend):
    """CSR products of torch (MKL or its own kernels on a CPU, cuSPARSE on CUDA)."""

    name = "native"
    priority = 10
    devices = frozenset({"cpu", "cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"additive"}
    deterministic = True
    tolerance = 1e-5

    def remarks(self) -> list[str]:
        """See :meth:`Backend.remarks`."""
        if not torch.backends.mkl.is_available():
            return ["this torch has no MKL; its own CSR products serve, about three times slower"]
        return []

    def why_not(self, request: Request) -> list[str]:
        """torch reduces with max and min on a CPU alone. Nothing here needs MKL: see ``times``."""
        reasons = super().why_not(request)
        if request.device != "cpu" and request.reduction in ("max", "min"):
            reasons.append(f"reduces with {request.reduction} on cpu only")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """See :meth:`Backend.spmm`."""
        heads = x.size(1) if value is None else value.size(1)
        if value is None:
            matrix = csr(ptr, index, x.new_ones(index.numel()), x.size(0))
            return times(matrix, x.flatten(1)).unflatten(1, x.shape[1:])
        if heads == 1:
            matrix = csr(ptr, index, value.view(-1), x.size(0))
            return times(matrix, x.squeeze(1)).unsqueeze(1)
        out = x.new_empty((ptr.numel() - 1, heads, x.size(2)))
        for head in range(heads):
            matrix = csr(ptr, index, value[:, head].contiguous(), x.size(0))
            out[:, head] = times(matrix, x[:, head if x.size(1) > 1 else 0].contiguous())
        return out

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        """See :meth:`Backend.spmm_arg`."""
        heads = x.size(1) if value is None else value.size(1)
        out = torch.empty((ptr.numel() - 1, heads, x.size(2)), dtype=torch.int64, device=x.device)
        for head in range(heads):
            given = x.new_ones(index.numel()) if value is None else value[:, head].contiguous()
            matrix = csr(ptr, index, given, x.size(0))
            column = x[:, head if x.size(1) > 1 else 0].contiguous()
            out[:, head] = _arguments(matrix, column, "amax" if largest else "amin")
        return out

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """See :meth:`Backend.sddmm`."""
        heads = max(a.size(1), b.size(1))
        if heads == 1:
            return sampled(ptr, index, a.squeeze(1), b.squeeze(1)).unsqueeze(1)
        out = a.new_empty((index.numel(), heads))
        for head in range(heads):
            left = a[:, head if a.size(1) > 1 else 0].contiguous()
            right = b[:, head if b.size(1) > 1 else 0].contiguous()
            out[:, head] = sampled(ptr, index, left, right)
        return out

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        """See :meth:`Backend.segment_sum`."""
        return row_sums(ptr, value.to(accumulator(value.dtype))).to(value.dtype)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        """See :meth:`Backend.segment_softmax`."""
        wide = score.to(accumulator(score.dtype))
        shift = native_attend.shift_of_rows(ptr, wide)
        weight = wide.exp() if shift is None else (wide - spread(ptr, shift, len(score))).exp_()
        total = row_sums(ptr, weight)
        total.masked_fill_(total == 0, 1.0)
        return weight.div_(spread(ptr, total, score.size(0))).to(score.dtype)

    attend = staticmethod(native_attend.forward)
    attend_backward = staticmethod(native_attend.backward)
    additive = staticmethod(tiled_additive.score)
    additive_rows = staticmethod(tiled_additive.rows_by(tiled_additive.sum_by_product))
    grouped_matmul = staticmethod(native_grouped.matmul)
    grouped_outer = staticmethod(native_grouped.outer)


def _arguments(matrix: Tensor, x: Tensor, reduce: str) -> Tensor:
    """(R, channels) int64, the entry of each row's extreme, -1 for rows without entries."""
    entries = matrix.values().numel()
    if entries == 0 or x.size(1) == 0:
        return torch.full((matrix.size(0), x.size(1)), -1, device=x.device)
    # torch returns arguments only where gradients are wanted.
    with torch.enable_grad():
        asked = x.detach().requires_grad_()
        _, arg = torch.ops.aten._sparse_mm_reduce_impl(matrix, asked, reduce)
    # torch finds none in a row whose entries are all -inf, which are equal: the first is taken.
    ptr = matrix.crow_indices()
    first = torch.where(ptr.diff() > 0, ptr[:-1], -1).unsqueeze(-1)
    return torch.where(arg == entries, first, arg).to(torch.int64)
