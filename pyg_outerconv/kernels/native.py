"""torch's own CSR kernels: no tensor of entries × channels is ever held."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .backend import Backend
from .reference import rows_of

# torch says once in a process that CSR is in beta; the kernels used here are tested against the
# reference, so the notice would only alarm the reader.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")

# Entries that a tile of the gathered sddmm holds at once, times channels.
_TILE_ELEMENTS = 1 << 20


class Native(Backend):
    """CSR products of torch (MKL or its own kernels on a CPU, cuSPARSE on CUDA)."""

    name = "native"
    priority = 10
    devices = frozenset({"cpu", "cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    deterministic = True
    tolerance = 1e-5

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """See :meth:`Backend.spmm`."""
        if value is None:
            value = x.new_ones(index.numel())
        matrix = _csr(ptr, index, value, x.size(0))
        if x.is_cuda or (
            x.dtype in (torch.float32, torch.float64) and torch.backends.mkl.is_available()
        ):
            return matrix @ x
        return torch.sparse.mm(matrix, x, "sum")

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """See :meth:`Backend.sddmm`."""
        # torch samples in float32 and float64, and only fewer products than the matrix has places.
        if a.dtype in (torch.float32, torch.float64) and index.numel() <= a.size(0) * b.size(0):
            zeros = a.new_zeros(index.numel())
            matrix = _csr(ptr, index, zeros, b.size(0))
            return torch.sparse.sampled_addmm(matrix, a, b.t(), beta=0.0).values()
        return _sddmm_in_tiles(ptr, index, a, b)


def _csr(ptr: Tensor, index: Tensor, value: Tensor, num_cols: int) -> Tensor:
    # Repeated columns in a row break torch's invariants on paper, yet every kernel used here
    # adds them up, which is what parallel edges mean.
    size = (ptr.numel() - 1, num_cols)
    return torch.sparse_csr_tensor(ptr, index, value, size, check_invariants=False)


def _sddmm_in_tiles(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
    rows, out = rows_of(ptr), a.new_empty(index.numel())
    wide = a.dtype if a.dtype == torch.float64 else torch.float32
    step = max(1, _TILE_ELEMENTS // max(1, a.size(1)))
    for start in range(0, index.numel(), step):
        tile = slice(start, start + step)
        left, right = a.index_select(0, rows[tile]), b.index_select(0, index[tile])
        out[tile] = (left.to(wide) * right.to(wide)).sum(-1).to(a.dtype)
    return out
