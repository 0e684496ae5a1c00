"""CSR matrices of torch: products, sampled products, and reductions of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from .tiles import accumulator, rows_of, tiles


def csr(ptr: Tensor, index: Tensor, value: Tensor, num_cols: int) -> Tensor:
    """The matrix with these entries; nothing is copied or checked."""
    # Repeated columns in a row break torch's invariants on paper, yet every kernel used here
    # adds them up, which is what parallel edges mean.
    size = (ptr.numel() - 1, num_cols)
    return torch.sparse_csr_tensor(ptr, index, value, size, check_invariants=False)


def times(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix @ x by the fastest kernel that torch has for the type."""
    if x.is_cuda or (
        x.dtype in (torch.float32, torch.float64) and torch.backends.mkl.is_available()
    ):
        return matrix @ x
    return torch.sparse.mm(matrix, x, "sum")


def can_sample(dtype: torch.dtype, entries: int, rows: int, cols: int) -> bool:
    """Whether torch samples products of this type for such a matrix."""
    # In float32 and float64, and only fewer products than the matrix has places.
    return dtype in (torch.float32, torch.float64) and entries <= rows * cols


def sampled(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """<a[row of e], b[index[e]]> for each entry; a (R, channels), b (C, channels)."""
    if can_sample(a.dtype, index.numel(), a.size(0), b.size(0)):
        matrix = csr(ptr, index, a.new_zeros(index.numel()), b.size(0))
        return torch.sparse.sampled_addmm(matrix, a, b.t(), beta=0.0).values()
    wide, rows, out = accumulator(a.dtype), rows_of(ptr), a.new_empty(index.numel())
    for tile in tiles(ptr, index.numel(), a.size(1)):
        left = a.index_select(0, rows[tile.entries]).to(wide)
        right = b.index_select(0, index[tile.entries]).to(wide)
        out[tile.entries] = (left * right).sum(-1).to(a.dtype)
    return out


def row_sums(ptr: Tensor, value: Tensor, reduce: str = "sum") -> Tensor:
    """``reduce`` ('sum' or 'max') within rows: (E, ...) to (R, ...).

    Rows without entries give the neutral element.
    """
    if value.numel() == 0:
        empty = 0.0 if reduce == "sum" else -torch.inf
        return value.new_full((ptr.numel() - 1, *value.shape[1:]), empty)
    return torch.segment_reduce(value, reduce, offsets=ptr.long(), axis=0, unsafe=True)


def spread(ptr: Tensor, x: Tensor, num_entries: int) -> Tensor:
    """Every row's value at each of its entries: (R, ...) to (E, ...)."""
    return torch.repeat_interleave(x, ptr.diff().long(), dim=0, output_size=num_entries)
