"""The places of the entries of a sparse matrix, sorted by row and by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from .edge_lists import transposed_rows
from .index_checks import check_indices, check_integers, check_pointers, has_numbers
from .lasting import lasting
from .parts import part


@dataclass(frozen=True, eq=False, init=False)
class Sparsity:
    """The places of the E entries of an R × C sparse matrix, by row and by column.

    Values of the entries are always in row order. Repeated entries are allowed and add up. The
    tensors are checked once, here, because kernels read memory at these indices without a check.
    Contiguous tensors are not copied, and must not be changed afterwards.

    Attributes:
        rowptr: (R + 1,) the entries of row r are ``rowptr[r]:rowptr[r + 1]``.
        col: (E,) the column of each entry, in row order.
        colptr: (C + 1,) the entries of column c are ``colptr[c]:colptr[c + 1]``.
        row: (E,) the row of each entry, in column order.
        perm: (E,) the position, in row order, of each entry in column order.

    Raises:
        TypeError: an argument is no tensor, or they are not all int32 or all int64.
        ValueError: they are not vectors of matching lengths on one device; pointers do not ascend
            from 0 to E; an index is out of range; or rows and columns do not list the same entries.
    """

    rowptr: Tensor
    col: Tensor
    colptr: Tensor = part("_by_column")
    row: Tensor = part("_by_column")
    perm: Tensor = part("_by_column")

    num_cols: ClassVar[int | None] = None  # C, of a matrix that is not sorted by column yet

    def __init__(
        self, rowptr: Tensor, col: Tensor, colptr: Tensor, row: Tensor, perm: Tensor
    ) -> None:
        vars(self).update(rowptr=rowptr, col=col, colptr=colptr, row=row, perm=perm)
        _check_types(self)
        vars(self).update({name: getattr(self, name).contiguous() for name in _NAMES})
        if has_numbers(*self.tensors):
            _check_numbers(self)

    def _by_column(self, name: str) -> dict[str, Tensor]:
        assert self.num_cols is not None  # known_rows sets it
        with lasting(self.col):
            transposed = transposed_rows(self.rowptr, self.col, self.num_cols)
        return dict(zip(BY_COLUMN, transposed, strict=True))

    def _keep(self, tensors: dict[str, Tensor]) -> None:
        if not torch.compiler.is_compiling():  # tensors of a compiled graph cannot be stored
            vars(self).update(tensors)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """``rowptr``, ``col``, ``colptr``, ``row``, ``perm``."""
        return self.rowptr, self.col, self.colptr, self.row, self.perm

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (R, C) of the matrix."""
        cols = self.num_cols
        return self.rowptr.numel() - 1, self.colptr.numel() - 1 if cols is None else cols

    @property
    def num_entries(self) -> int:
        """E, with each repeated entry counted."""
        return self.col.numel()

    def to(self, device: torch.device | str) -> Sparsity:
        """A copy on another device; its columns are sorted when they are needed, if not here."""
        if self.num_cols is not None and "perm" not in vars(self):
            return known_rows(self.rowptr.to(device), self.col.to(device), self.num_cols)
        return known_sparsity(*(tensor.to(device) for tensor in self.tensors))


def known_sparsity(
    rowptr: Tensor, col: Tensor, colptr: Tensor, row: Tensor, perm: Tensor
) -> Sparsity:
    """A :class:`Sparsity` of contiguous tensors that are known to be valid, without a check."""
    sparsity = object.__new__(Sparsity)
    vars(sparsity).update(rowptr=rowptr, col=col, colptr=colptr, row=row, perm=perm)
    return sparsity


def known_rows(rowptr: Tensor, col: Tensor, num_cols: int) -> Sparsity:
    """A :class:`Sparsity` of rows known to be valid; sorted by column at the first use of that."""
    if torch.compiler.is_compiling():  # a compiled graph cannot sort later
        return known_sparsity(rowptr, col, *transposed_rows(rowptr, col, num_cols))
    sparsity = object.__new__(Sparsity)
    vars(sparsity).update(rowptr=rowptr, col=col, num_cols=num_cols)
    return sparsity


@dataclass(frozen=True)
class View:
    """A sparse matrix or its transpose, as an argument of primitives.

    Values are always in row order of the matrix itself. It is opaque, no pytree: ``torch.func``
    flattens and rebuilds pytrees at every call, and would sort columns each time.
    """

    sparsity: Sparsity
    is_transposed: bool = False

    @property
    def by_row(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Row pointers, the column of each entry, and its position in row order; None if equal."""
        known = self.sparsity
        if self.is_transposed:
            return known.colptr, known.row, known.perm
        return known.rowptr, known.col, None

    @property
    def transposed(self) -> View:
        """The transpose."""
        return View(self.sparsity, not self.is_transposed)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (R, C)."""
        rows, cols = self.sparsity.shape
        return (cols, rows) if self.is_transposed else (rows, cols)


BY_COLUMN = ("colptr", "row", "perm")
_NAMES = ("rowptr", "col", *BY_COLUMN)


def _check_types(sparsity: Sparsity) -> None:
    for name in _NAMES:
        check_integers(name, getattr(sparsity, name))
    dtypes = {tensor.dtype for tensor in sparsity.tensors}
    if len(dtypes) > 1:
        raise RefusedType(
            "the tensors of a sparsity need one dtype", "one dtype", sorted(map(str, dtypes))
        )
    devices = {str(tensor.device) for tensor in sparsity.tensors}
    if len(devices) > 1:
        raise RefusedValue(
            "the tensors of a sparsity need one device", "one device", ", ".join(sorted(devices))
        )
    for name in ("rowptr", "colptr"):
        if not getattr(sparsity, name).numel():
            raise RefusedValue(
                f"{name} must begin with 0", "at least one number", "an empty tensor"
            )
    for name in ("row", "perm"):
        if getattr(sparsity, name).numel() != sparsity.num_entries:
            raise RefusedValue(
                f"{name} needs a number for each entry of col",
                sparsity.num_entries,
                getattr(sparsity, name).numel(),
            )


def _check_numbers(sparsity: Sparsity) -> None:
    (rows, cols), entries = sparsity.shape, sparsity.num_entries
    check_pointers("rowptr", sparsity.rowptr, entries)
    check_pointers("colptr", sparsity.colptr, entries)
    check_indices("col", sparsity.col, cols)
    check_indices("row", sparsity.row, rows)
    check_indices("perm", sparsity.perm, entries)
    perm = sparsity.perm
    found = torch.zeros(entries, dtype=torch.bool, device=perm.device)
    found[perm.long()] = True
    if not bool(found.all()):
        raise RefusedValue(
            "perm must be a permutation", "each position once", "a repeated position"
        )
    row = _node_of_each(sparsity.rowptr, entries).index_select(0, perm)
    col = _node_of_each(sparsity.colptr, entries)
    same = (row == sparsity.row) & (sparsity.col.index_select(0, perm) == col)
    if not bool(same.all()):
        raise RefusedValue(
            "rows and columns must list the same entries",
            "entry i by column at the same place as entry perm[i] by row",
            f"{int((~same).sum())} entries at different places",
        )


def _node_of_each(ptr: Tensor, entries: int) -> Tensor:
    """The row of each entry, (E,) in row order, given row pointers (R + 1,)."""
    nodes = torch.arange(ptr.numel() - 1, dtype=ptr.dtype, device=ptr.device)
    return nodes.repeat_interleave(ptr.diff(), output_size=entries)
