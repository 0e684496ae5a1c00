"""The matrices of several heads, which have entries at the same places, as one matrix."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from .backends.native_csr import row_sums, sampled, times, torch_csr
from .csr import CSR
from .edge_lists import by_rows, spread
from .edge_sums import is_safe
from .lasting import lasting

MOST_COPIED = 2**22
"""Up to so many entries times heads, one product serves all heads; beyond, each head has one.

One matrix reads operands as they are, and their rows while they are in a cache: with 4 heads of 16
channels on 50k nodes and 600k edges it takes 9 ms where a product for each head takes 16. On twice
as many nodes they no longer fit, and both take as long; then indices of copies only cost memory.
"""

_INTEGERS: dict[torch.dtype, Any] = {torch.int32: np.int32, torch.int64: np.int64}
_View = tuple[Tensor, Tensor, Tensor | None]


class HeadCopies:
    """The matrices S_h (R × C) of H heads with entries at the same places.

    Dense operands are (rows, H, V), or (rows, H), contiguous. One matrix (R·H × C·H) has the entry
    of row r, column c and head h in row ``r H + h`` and column ``c H + h``; values are in the order
    of its rows. Where it would be too large, values are head by head, each head in row order.

    Args:
        csr: the places of the E entries.
        heads: H.
        row: (E,) the row of each entry, in row order, if it is at hand.

    Attributes:
        num_values: E·H.
    """

    def __init__(self, csr: CSR, heads: int, row: Tensor | None = None) -> None:
        # The matrix keeps its copies; a reference in turn would keep both until a collection.
        self._csr, self._shape, self.heads = ref(csr), csr.shape, heads
        self.num_values = csr.num_entries * heads
        with lasting(csr.index):
            if row is None:
                rows = torch.arange(csr.shape[0], dtype=csr.index.dtype)
                row = spread(rows, csr.ptr, csr.num_entries)
            fits = max(csr.shape) * heads <= np.iinfo(_INTEGERS[csr.index.dtype]).max
            self._is_one = fits and self.num_values <= MOST_COPIED
            self._entries = csr.ptr, row, csr.index
            self._ptr, self._row, self._col = self._entries
            if self._is_one:
                place = _places(csr.ptr, row, heads)
                self._ptr = _pointers(csr.ptr, heads)
                self._row, self._col = _copied(row, place), _copied(csr.index, place)
        self._transposed: _View | None = None

    @property
    def csr(self) -> CSR:
        """The places of the entries."""
        ptr, _, index = self._entries
        return self._csr() or CSR.of(ptr, index, self._shape[1])

    def times(self, value: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
        """S_h x_h, (R, H, V), or S_hᵀ x_h, for values (E·H,) and x (C, H, V)."""
        view = self._by_column() if transposed else (self._ptr, self._col, None)
        ptr, index, order = view
        rows, width = x.size(0), x.size(2)
        if self._is_one:
            value = value if order is None else value.index_select(0, order)
            matrix = torch_csr(ptr, index, value, rows * self.heads)
            out = times(matrix, x.view(rows * self.heads, width))
            # No view, which could not be changed in place.
            return out.resize_(self._shape[transposed], self.heads, width)
        values = value.view(self.heads, -1)
        values = values if order is None else values.index_select(1, order)
        out = x.new_empty((ptr.numel() - 1, self.heads, width))
        for head in range(self.heads):
            matrix = torch_csr(ptr, index, values[head], rows)
            out[:, head] = times(matrix, x[:, head].contiguous())
        return out

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """⟨a_h[row of e], b_h[column of e]⟩, (E·H,), for a (R, H, V) and b (C, H, V)."""
        if self._is_one:
            return sampled(self._ptr, self._col, a.flatten(0, 1), b.flatten(0, 1))
        out = a.new_empty((self.heads, self._row.numel()))
        for head in range(self.heads):
            out[head] = sampled(
                self._ptr, self._col, a[:, head].contiguous(), b[:, head].contiguous()
            )
        return out.view(-1)

    def sums(self, value: Tensor) -> Tensor:
        """Sum the values (E·H,) of each row: (R, H)."""
        rows, cols = self._shape
        if self._is_one:
            return self._summed(value, value.new_ones(cols * self.heads)).view(rows, self.heads)
        ones = value.new_ones(cols)
        of_heads = [self._summed(one, ones) for one in value.view(self.heads, -1)]
        return torch.stack(of_heads, dim=1)

    def sums_transposed(self, value: Tensor) -> Tensor:
        """Sum the values (E·H,) of each column: (C, H)."""
        cols = self._shape[1]
        # index_add_ takes ten times as long with indices of 32 bits.
        if self._is_one:
            out = value.new_zeros(cols * self.heads).index_add_(0, self._col.long(), value)
            return out.view(cols, self.heads)
        out = value.new_zeros((self.heads, cols))
        return out.index_add_(1, self._col.long(), value.view(self.heads, -1)).t()

    def at_rows(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The number of the row of each entry, (E·H,), for x (R, H)."""
        return self._at(x, self._row, out)

    def at_columns(self, x: Tensor) -> Tensor:
        """The number of the column of each entry, (E·H,), for x (C, H)."""
        return self._at(x, self._col)

    def raised(self, score: Tensor) -> Tensor:
        """exp of scores (E·H,), in place; large scores are reduced by the largest of their row."""
        if score.numel() and not is_safe(score):
            if self._is_one:
                highest = row_sums(self._ptr, score, "max").view(-1, self.heads)
            else:
                by_entry = score.view(self.heads, -1).t().contiguous()
                highest = row_sums(self._ptr, by_entry, "max")
            score -= self.at_rows(highest.masked_fill_(highest == -torch.inf, 0.0))
        return score.exp_()

    def shares(self, score: Tensor) -> Tensor:
        """The softmax of scores (E·H,) over the entries of each row, in place."""
        raised = self.raised(score)
        total = self.sums(raised).clamp_(min=torch.finfo(raised.dtype).tiny)
        return raised.mul_(self.at_rows(total.reciprocal_()))

    def _summed(self, value: Tensor, ones: Tensor) -> Tensor:
        matrix = torch_csr(self._ptr, self._col, value, ones.numel())
        out = value.new_empty(matrix.size(0))
        return torch.addmv(out, matrix, ones, beta=0.0, out=out)

    def _at(self, x: Tensor, place: Tensor, out: Tensor | None = None) -> Tensor:
        if self._is_one:
            return torch.index_select(x.reshape(-1), 0, place, out=out)
        out = None if out is None else out.view(self.heads, -1)
        return torch.index_select(x.t().contiguous(), 1, place, out=out).view(-1)

    def _by_column(self) -> _View:
        """The transposed matrix: pointers, indices, and where the value of each entry is."""
        if self._transposed is not None:
            return self._transposed
        (starts, rows, columns), cols = self._entries, self._shape[1]
        with lasting(rows):
            kept = vars(self.csr)
            if "columns" not in kept:  # the rows that are at hand make it faster to sort
                kept["columns"] = by_rows(columns, rows, cols)
            ptr, row, order = kept["columns"]
            if self._is_one:
                col = spread(torch.arange(cols, dtype=row.dtype), ptr, row.numel())
                place = _places(ptr, col, self.heads)
                of_values = np.empty(self.num_values, _INTEGERS[row.dtype])
                of_values[place] = _places(starts, rows, self.heads).take(order.numpy(), 1)
                ptr, row = _pointers(ptr, self.heads), _copied(row, place)
                order = torch.from_numpy(of_values)
        self._transposed = ptr, row, order
        return self._transposed


def copies_for(csr: CSR, heads: int, row: Tensor | None = None) -> HeadCopies:
    """The matrix of some heads, which the matrix of each keeps."""
    kept = vars(csr).setdefault("head_copies", {})
    if heads not in kept:
        kept[heads] = HeadCopies(csr, heads, row)
    return kept[heads]  # type: ignore[no-any-return]


def _pointers(ptr: Tensor, heads: int) -> Tensor:
    """Row pointers (R·H + 1,) of the matrix of all heads, given those of one."""
    starts = ptr.numpy()
    out = np.empty((starts.size - 1) * heads + 1, starts.dtype)
    of_heads = np.diff(starts)[:, None] * np.arange(heads, dtype=starts.dtype)
    np.add(starts[:-1, None] * starts.dtype.type(heads), of_heads, out=out[:-1].reshape(-1, heads))
    out[-1] = starts[-1] * heads
    return torch.from_numpy(out)


def _places(ptr: Tensor, row: Tensor, heads: int) -> np.ndarray:
    """(H, E) the place of each entry of each head in the matrix of all heads."""
    starts, rows = ptr.numpy(), row.numpy()
    first = starts.take(rows) * starts.dtype.type(heads - 1)
    first += np.arange(rows.size, dtype=starts.dtype)
    return first + np.diff(starts).take(rows) * np.arange(heads, dtype=starts.dtype)[:, None]


def _copied(numbers: Tensor, place: np.ndarray) -> Tensor:
    """The rows or columns (E,) of entries, of the matrix of all heads (E·H,), at these places."""
    given, heads = numbers.numpy(), place.shape[0]
    out = np.empty(place.size, given.dtype)
    for head in range(heads):
        out[place[head]] = given * given.dtype.type(heads) + given.dtype.type(head)
    return torch.from_numpy(out)
