"""torch's CSR matrices: products, sampled products, and reductions of rows."""

from __future__ import annotations

import warnings
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tiles import accumulator, rows_of, tiles

_LINE = 64  # bytes of a cache line
_CACHE = 8 << 20  # bytes of cache that a core has at least
_LANES = 8  # channels in float32 that MKL samples at once


def torch_csr(ptr: Tensor, index: Tensor, value: Tensor, num_cols: int) -> Tensor:
    """The CSR matrix with these entries, without a copy and without checks."""
    # Repeated columns in a row, which are parallel edges, break torch's invariants; but every
    # kernel used here adds them up.
    _silence_beta_warning()
    size = (ptr.numel() - 1, num_cols)
    return torch.sparse_csr_tensor(ptr, index, value, size, check_invariants=False)


@cache
def _silence_beta_warning() -> None:
    """Silence torch's warning, given once in a process, that CSR is in beta.

    The kernels used here are tested against the reference, so that the warning is of no use.
    """
    one = torch.zeros(1, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(one.expand(2).contiguous(), one[:0], torch.zeros(0), (1, 1))


def times(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix @ x, by torch's fastest kernel for the dtype."""
    if x.is_cuda:
        return matrix @ x
    if x.dtype in (torch.float32, torch.float64) and torch.backends.mkl.is_available():
        # MKL's product, not torch.sparse.mm(reduce): 17 ms against 47 on one machine of two cores,
        # 20 against 23 on another (100k rows, 1.2M entries, 64 channels, float32).
        # Write into a new tensor: matrix @ x fills one with zeros first, and then copies it.
        out = x.new_empty((matrix.size(0), x.size(1)))
        # Rows of x are read at random. If x is larger than a cache, and a slab of the columns of
        # one cache line is not, slab by slab is nearly twice as fast (100k rows, 1.2M entries, 64
        # channels, float32: 11 ms instead of 20).
        slab = x.size(0) * _LINE
        if not slab <= _CACHE < slab * (x.size(1) * x.itemsize // _LINE) // 2:
            return torch.addmm(out, matrix, x, beta=0.0, out=out)
        width = _LINE // x.itemsize
        for first in range(0, x.size(1), width):
            part = out[:, first : first + width]
            torch.addmm(part, matrix, x[:, first : first + width].contiguous(), beta=0.0, out=part)
        return out
    return torch.sparse.mm(matrix, x, "sum")


def can_sample(dtype: torch.dtype, entries: int, rows: int, cols: int) -> bool:
    """Whether torch's sampled product supports this dtype and such a matrix."""
    # It fails for more entries than the matrix has places.
    return dtype in (torch.float32, torch.float64) and entries <= rows * cols


def sampled(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """<a[row of e], b[index[e]]> for each entry, (E,), for a (R, channels) and b (C, channels).

    ``out``: contiguous memory for it.
    """
    out = a.new_empty(index.numel()) if out is None else out
    if can_sample(a.dtype, index.numel(), a.size(0), b.size(0)):
        if _is_narrow(a, index):
            a, b = (F.pad(x, (0, _LANES - x.size(1))) for x in (a, b))
        matrix = torch_csr(ptr, index, out.zero_(), b.size(0))
        if a.is_cuda:
            return out.copy_(torch.sparse.sampled_addmm(matrix, a, b.t(), beta=0.0).values())
        # Into the matrix itself: to copy its entries takes four times as long as the products (1M
        # entries, 8 channels: 10 ms instead of 2).
        torch.sparse.sampled_addmm(matrix, a, b.t(), beta=0.0, out=matrix)
        return out
    wide, rows = accumulator(a.dtype), rows_of(ptr)
    for tile in tiles(ptr, index.numel(), a.size(1)):
        left = a.index_select(0, rows[tile.entries]).to(wide)
        right = b.index_select(0, index[tile.entries]).to(wide)
        out[tile.entries] = (left * right).sum(-1).to(a.dtype)
    return out


def _is_narrow(a: Tensor, index: Tensor) -> bool:
    """Whether MKL samples faster with channels of zeros.

    Fewer than 8 channels it takes one by one (1M entries, float32: 50 ms for 7 channels, 4 for 8).
    """
    is_narrow = a.dtype == torch.float32 and 1 < a.size(1) < _LANES
    return is_narrow and not a.is_cuda and index.numel() > 2**12


def row_sums(ptr: Tensor, value: Tensor, aggr: str = "sum") -> Tensor:
    """Reduce each row by ``aggr``, 'sum' or 'max': (E, ...) to (R, ...).

    Rows without entries give 0 or -inf.
    """
    if value.numel() == 0:
        empty = 0.0 if aggr == "sum" else -torch.inf
        return value.new_full((ptr.numel() - 1, *value.shape[1:]), empty)
    return torch.segment_reduce(value, aggr, offsets=ptr.long(), axis=0, unsafe=True)
