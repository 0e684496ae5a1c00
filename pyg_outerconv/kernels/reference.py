"""The truth: gather, multiply, scatter, written to be read. Never picked automatically."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import Backend

_SHORT = (torch.float16, torch.bfloat16)


def rows_of(ptr: Tensor) -> Tensor:
    """The row of each entry: ``[0, 2, 3]`` becomes ``[0, 0, 1]``."""
    rows = torch.arange(ptr.numel() - 1, device=ptr.device)
    return rows.repeat_interleave(ptr.diff())


class Reference(Backend):
    """Plain torch indexing; holds one tensor of entries × channels. Half types add in float32."""

    name = "reference"
    priority = 0
    devices = frozenset({"cpu", "cuda", "mps", "xpu"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    deterministic = True
    tolerance = 0.0

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """See :meth:`Backend.spmm`."""
        dtype = torch.float32 if x.dtype in _SHORT else x.dtype
        messages = x.index_select(0, index).to(dtype)
        if value is not None:
            messages = messages * value.to(dtype).unsqueeze(-1)
        out = x.new_zeros((ptr.numel() - 1, x.size(1)), dtype=dtype)
        return out.index_add_(0, rows_of(ptr), messages).to(x.dtype)

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """See :meth:`Backend.sddmm`."""
        dtype = torch.float32 if a.dtype in _SHORT else a.dtype
        left, right = a.index_select(0, rows_of(ptr)), b.index_select(0, index)
        return (left.to(dtype) * right.to(dtype)).sum(-1).to(a.dtype)
