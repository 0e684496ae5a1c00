"""One sparse matrix for all heads, each with values of its own: all heads in one product."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .backends.native_csr import csr, row_sums, sampled, times
from .counting_sort import by_rows
from .lasting import lasting
from .listed import is_safe
from .sparsity import BY_COLUMN, Sparsity

MOST = 2**19
"""Entries times heads for which one product serves all heads; more take a product for each."""

_View = tuple[Tensor, Tensor, int]


class HeadCopies:
    """The matrices S_h (R × C) of H heads with entries at the same places, heads first.

    Their values (H, E), in row order, lie next to each other for each head, and so do operands
    (H, rows, V); nothing is copied on the way to a product. Where they are few, the heads are the
    blocks of one matrix.

    Args:
        sparsity: where the E entries are.
        row: (E,) the row of each.
        heads: H.
    """

    def __init__(self, sparsity: Sparsity, row: Tensor, heads: int) -> None:
        self.sparsity, self.row, self.heads = sparsity, row, heads
        self.shape, self.num_entries = sparsity.shape, sparsity.num_entries
        self._is_one = self.num_entries * heads <= MOST
        self._copies: dict[bool, _View] = {}

    @property
    def col(self) -> Tensor:
        """(E,) the column of each entry."""
        return self.sparsity.col

    def times(self, value: Tensor, x: Tensor) -> Tensor:
        """S_h x_h: (H, R, V) of values (H, E) and x (H, C, V)."""
        return self._multiply(value, x, transposed=False)

    def times_transposed(self, value: Tensor, x: Tensor) -> Tensor:
        """S_hᵀ x_h: (H, C, V) of values (H, E) and x (H, R, V)."""
        self._sort_by_column()
        return self._multiply(value.index_select(1, self.sparsity.perm), x, transposed=True)

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """⟨a_h[row of e], b_h[column of e]⟩: (H, E) of a (H, R, V) and b (H, C, V)."""
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
        """(H, R): the sums of values (H, E) over rows."""
        ptr, index, cols = self._view(transposed=False)
        rows = self.shape[0]
        out = value.new_empty((self.heads, rows))
        count = 1 if self._is_one else self.heads
        ones = value.new_ones(self.heads // count * cols)
        for values, total in zip(value.view(count, -1), out.view(count, -1), strict=True):
            matrix = csr(ptr, index, values, ones.numel())
            torch.addmv(total, matrix, ones, beta=0.0, out=total)
        return out

    def sums_transposed(self, value: Tensor) -> Tensor:
        """(H, C): the sums of values (H, E) over columns, in the order of rows."""
        # Which takes ten times as long with indices of 32 bits.
        out = value.new_zeros((self.heads, self.shape[1]))
        return out.index_add_(1, self.col.long(), value)

    def raised(self, score: Tensor) -> Tensor:
        """See :meth:`.listed.Listed.raised`, of (H, E)."""
        if not is_safe(score):
            highest = row_sums(self.sparsity.rowptr, score.t().contiguous(), "max").t()
            highest = highest.masked_fill(highest == -torch.inf, 0.0)
            score -= highest.index_select(1, self.row)
        return score.exp_()

    def _multiply(self, value: Tensor, x: Tensor, transposed: bool) -> Tensor:
        ptr, index, cols = self._view(transposed)
        if self._is_one:
            matrix = csr(ptr, index, value.view(-1), self.heads * cols)
            width = x.size(2)
            return times(matrix, x.view(-1, width)).view(self.heads, -1, width)
        out = x.new_empty((self.heads, ptr.numel() - 1, x.size(2)))
        for head in range(self.heads):
            out[head] = times(csr(ptr, index, value[head], cols), x[head])
        return out

    def _view(self, transposed: bool) -> _View:
        """Pointers, indices and columns of a head's matrix, or of that of all heads."""
        found = self._copies.get(transposed)
        if found is None:
            found = self._copies[transposed] = self._make_view(transposed)
        return found

    def _make_view(self, transposed: bool) -> _View:
        known, (rows, cols) = self.sparsity, self.shape
        view = (known.colptr, known.row, rows) if transposed else (known.rowptr, known.col, cols)
        if not self._is_one:
            return view
        with lasting(self.row):
            return _block_diagonal(*view, self.heads)

    def _sort_by_column(self) -> None:
        """Sort entries by column as the sparsity would, which has to find their rows first."""
        held = vars(self.sparsity)
        if "perm" not in held:
            with lasting(self.row):
                made = by_rows(self.col, self.row, self.shape[1])
            held.update(zip(BY_COLUMN, made, strict=True))


def _block_diagonal(ptr: Tensor, index: Tensor, cols: int, heads: int) -> _View:
    """Pointers and indices of the matrix whose blocks are that many copies of one."""
    given, places = ptr.numpy(), index.numpy()
    head = np.arange(heads, dtype=given.dtype)[:, None]
    pointers = np.empty(heads * (given.size - 1) + 1, given.dtype)
    np.add(given[:-1], head * given.dtype.type(places.size), out=pointers[:-1].reshape(heads, -1))
    pointers[-1] = heads * places.size
    indices = np.add(places, head * places.dtype.type(cols)).reshape(-1)
    return torch.from_numpy(pointers), torch.from_numpy(indices), cols
