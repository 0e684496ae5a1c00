"""The pattern of one sparse matrix, ready to be multiplied from both sides."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Sparsity(NamedTuple):
    """Where the E entries of an R × C matrix lie, by row and by column.

    Values that go with it are always in row order. Repeated entries are allowed and add up.

    Attributes:
        rowptr: (R + 1,) the entries of row r are ``rowptr[r]:rowptr[r + 1]``.
        col: (E,) the column of each entry, in row order.
        colptr: (C + 1,) the entries of column c are ``colptr[c]:colptr[c + 1]``.
        row: (E,) the row of each entry, in column order.
        perm: (E,) the position, in row order, of each entry in column order.
    """

    rowptr: Tensor
    col: Tensor
    colptr: Tensor
    row: Tensor
    perm: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.rowptr.numel() - 1, self.colptr.numel() - 1

    @property
    def num_entries(self) -> int:
        """E, repeated entries counted each."""
        return self.col.numel()
