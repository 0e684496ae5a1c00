"""CSR: the places of the entries of a sparse matrix, row by row, and of its transpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..signatures import check_type
from .capture import is_capturing
from .edge_lists import transposed_rows
from .index_checks import check_indices, check_integers, check_pointers, has_numbers
from .lasting import lasting, part

Columns = tuple[Tensor, Tensor, Tensor]
"""The entries by column: pointers (C + 1,), the row of each (E,), and its position by row (E,)."""


@dataclass(frozen=True, eq=False, init=False)
class CSR:
    """The places of the E entries of an R × C sparse matrix in compressed sparse rows.

    Primitives take it, and values (E,) beside it, which a matrix and its transpose share: they are
    in the order of the rows of the matrix that was made, so that ``order`` is None for it, and says
    for its transpose ``T`` where the value of each entry is. Repeated entries are allowed and add
    up. It is opaque, no pytree: ``torch.func`` takes pytrees apart at every call, and would sort
    columns each time.

    Attributes:
        ptr: (R + 1,) the entries of row r are ``ptr[r]:ptr[r + 1]``.
        index: (E,) the column of each entry.
        shape: (R, C).
        order: (E,) the position of each entry among the values; None if it is its own.
        columns: the entries by column, sorted when they are first asked for.
        is_captured: whether it was made while a CUDA graph was captured.

    Args:
        ptr: (R + 1,), int32 or int64.
        index: (E,), of the same dtype. Both are checked, because kernels read memory at these
            places without a check; they are not copied if contiguous, and must not be changed
            afterwards.
        num_columns: C.

    Raises:
        TypeError: an argument is no tensor, or they are not both int32 or both int64.
        ValueError: they are not vectors on one device, pointers do not ascend from 0 to E, or an
            index is out of range.
    """

    ptr: Tensor
    index: Tensor
    shape: tuple[int, int]
    order: Tensor | None = None
    columns: Columns = part("_sort_by_column")
    is_captured: ClassVar[bool] = False

    def __init__(self, ptr: Tensor, index: Tensor, num_columns: int) -> None:
        check_integers("ptr", ptr)
        check_integers("index", index)
        check_type("CSR", "num_columns", num_columns, int)
        if ptr.dtype != index.dtype:
            raise RefusedType(
                "ptr and index of a CSR matrix have one dtype", ptr.dtype, index.dtype
            )
        if ptr.device != index.device:
            rule = "ptr and index of a CSR matrix are on one device"
            raise RefusedValue(rule, ptr.device, index.device)
        if not ptr.numel():
            raise RefusedValue("ptr must begin with 0", "at least one number", "an empty tensor")
        if num_columns < 0:
            raise RefusedValue("a CSR matrix has a number of columns", ">= 0", num_columns)
        if has_numbers(ptr, index):
            check_pointers("ptr", ptr, index.numel())
            check_indices("index", index, num_columns)
        shape = ptr.numel() - 1, num_columns
        # MKL reads a strided pointer as if it were not.
        own = vars(self)
        own["ptr"], own["index"], own["shape"] = ptr.contiguous(), index.contiguous(), shape

    @staticmethod
    def of(ptr: Tensor, index: Tensor, num_columns: int, columns: Columns | None = None) -> CSR:
        """The matrix of contiguous tensors that are valid by the way they were computed."""
        if columns is None and torch.compiler.is_compiling():  # a traced graph cannot sort later
            columns = transposed_rows(ptr, index, num_columns)
        csr = object.__new__(CSR)
        own = vars(csr)
        own["ptr"], own["index"], own["shape"] = ptr, index, (ptr.numel() - 1, num_columns)
        if columns is not None:
            own["columns"] = columns
        elif index.is_cuda and is_capturing():
            own["is_captured"] = True
        return csr

    @property
    def T(self) -> CSR:  # noqa: N802 - as of a tensor
        """The transpose (C × R), of the same values."""
        ptr, index, order = self.columns
        csr = object.__new__(CSR)
        own = vars(csr)
        own["ptr"], own["index"], own["order"] = ptr, index, order
        own["shape"], own["columns"] = self.shape[::-1], (self.ptr, self.index, self.order)
        return csr

    @property
    def num_entries(self) -> int:
        """E, with each repeated entry counted."""
        return self.index.numel()

    def to(self, device: torch.device | str) -> CSR:
        """A copy on another device; its columns are sorted when they are needed, if not here."""
        if self.order is not None:
            return self.T.to(device).T
        moved = CSR.of(self.ptr.to(device), self.index.to(device), self.shape[1])
        if "columns" in vars(self):
            ptr, index, order = self.columns
            vars(moved)["columns"] = ptr.to(device), index.to(device), order.to(device)
        return moved

    def _sort_by_column(self, name: str) -> dict[str, Columns]:
        with lasting(self.index):
            return {name: transposed_rows(self.ptr, self.index, self.shape[1])}

    def _keep(self, parts: dict[str, Columns]) -> None:
        if torch.compiler.is_compiling():
            return  # tensors of a compiled graph cannot be stored
        if not (self.index.is_cuda and is_capturing()) or self.is_captured:
            vars(self).update(parts)
