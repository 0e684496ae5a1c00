"""Sparse matrices of all heads with entries at the same places, multiplied in one product."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .backends.native_csr import row_sums, sampled, times, torch_csr
from .csr import CSR, Columns
from .edge_lists import by_rows
from .edge_sums import is_safe
from .lasting import lasting

MOST = 2**19
"""Up to so many entries times heads, one product serves all heads; beyond, each head has one."""

_View = tuple[Tensor, Tensor, int]


class HeadCopies:
    """The matrices S_h (R × C) of H heads with entries at the same places.

    Values (H, E), in row order, and operands (H, rows, V) have the heads first, so that those of a
    head are contiguous and need no copy. Small matrices become the diagonal blocks of one matrix.

    Args:
        csr: the places of the E entries.
        row: (E,) the row of each entry, in row order.
        heads: H.

    Attributes:
        col: (E,) the column of each entry, in row order.
        shape: (R, C).
        num_entries: E.
    """

    def __init__(self, csr: CSR, row: Tensor, heads: int) -> None:
        self.csr, self.row, self.col, self.heads = csr, row, csr.index, heads
        self.shape, self.num_entries = csr.shape, row.numel()
        self._is_one = self.num_entries * heads <= MOST
        self._copies: dict[bool, _View] = {}

    def times(self, value: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
        """S_h x_h, (H, R, V), or S_hᵀ x_h, for values (H, E), in row order, and x (H, C, V)."""
        if transposed:
            _, _, order = self._sorted_by_column()
            value = value.index_select(1, order)
        ptr, index, cols = self._view(transposed)
        if self._is_one:
            matrix = torch_csr(ptr, index, value.view(-1), self.heads * cols)
            width = x.size(2)
            return times(matrix, x.view(-1, width)).view(self.heads, -1, width)
        out = x.new_empty((self.heads, ptr.numel() - 1, x.size(2)))
        for head in range(self.heads):
            out[head] = times(torch_csr(ptr, index, value[head], cols), x[head])
        return out

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """⟨a_h[row of e], b_h[column of e]⟩, (H, E), for a (H, R, V) and b (H, C, V)."""
        ptr, index, _ = self._view(transposed=False)
        if self._is_one:
            width = a.size(2)
            found = sampled(ptr, index, a.view(-1, width), b.view(-1, width))
            return found.view(self.heads, -1)
        out = a.new_empty((self.heads, self.num_entries))
        for head in range(self.heads):
            out[head] = sampled(ptr, index, a[head], b[head])
        return out

    def sums(self, value: Tensor) -> Tensor:
        """Sum the values (H, E) of each row: (H, R)."""
        ptr, index, cols = self._view(transposed=False)
        rows = self.shape[0]
        out = value.new_empty((self.heads, rows))
        count = 1 if self._is_one else self.heads
        ones = value.new_ones(self.heads // count * cols)
        for values, total in zip(value.view(count, -1), out.view(count, -1), strict=True):
            matrix = torch_csr(ptr, index, values, ones.numel())
            torch.addmv(total, matrix, ones, beta=0.0, out=total)
        return out

    def sums_transposed(self, value: Tensor) -> Tensor:
        """Sum the values (H, E), in row order, of each column: (H, C)."""
        # index_add_ takes ten times as long with indices of 32 bits.
        out = value.new_zeros((self.heads, self.shape[1]))
        return out.index_add_(1, self.col.long(), value)

    def raised(self, score: Tensor) -> Tensor:
        """exp of scores (H, E), in place; large scores are reduced by the largest of their row."""
        if not is_safe(score):
            highest = row_sums(self.csr.ptr, score.t().contiguous(), "max").t()
            highest = highest.masked_fill(highest == -torch.inf, 0.0)
            score -= highest.index_select(1, self.row)
        return score.exp_()

    def _view(self, transposed: bool) -> _View:
        """Pointers, indices and number of columns of a head's matrix, or of that of all heads."""
        view = self._copies.get(transposed)
        if view is not None:
            return view
        ptr, index, cols = self.csr.ptr, self.csr.index, self.shape[1]
        if transposed:
            ptr, index, _ = self._sorted_by_column()
            cols = self.shape[0]
        if self._is_one:  # the block-diagonal matrix of a copy for each head
            with lasting(self.row):
                starts, columns = ptr.numpy(), index.numpy()
                head = np.arange(self.heads, dtype=starts.dtype)[:, None]
                pointers = np.empty(self.heads * (starts.size - 1) + 1, starts.dtype)
                of_head = pointers[:-1].reshape(self.heads, -1)
                np.add(starts[:-1], head * starts.dtype.type(columns.size), out=of_head)
                pointers[-1] = self.heads * columns.size
                indices = np.add(columns, head * columns.dtype.type(cols)).reshape(-1)
                ptr, index = torch.from_numpy(pointers), torch.from_numpy(indices)
        self._copies[transposed] = ptr, index, cols
        return ptr, index, cols

    def _sorted_by_column(self) -> Columns:
        """The entries by column, which the rows that are at hand make faster to sort."""
        if "columns" not in vars(self.csr):
            with lasting(self.row):
                vars(self.csr)["columns"] = by_rows(self.col, self.row, self.shape[1])
        return self.csr.columns
