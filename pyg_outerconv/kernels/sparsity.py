"""The pattern of one sparse matrix, ready to be multiplied from both sides."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .counting_sort import transposed_rows
from .index_checks import check_indices, check_integers, check_pointers, has_numbers
from .lasting import lasting


@dataclass(frozen=True, eq=False)
class Sparsity:
    """Where the E entries of an R × C matrix lie, by row and by column.

    Values that go with it are always in row order. Repeated entries are allowed and add up. It is
    checked when it is made, once: kernels read where it says, without looking. Strided tensors are
    copied into contiguous ones, others are not copied, and must not be written to any more.

    Attributes:
        rowptr: (R + 1,) the entries of row r are ``rowptr[r]:rowptr[r + 1]``.
        col: (E,) the column of each entry, in row order.
        colptr: (C + 1,) the entries of column c are ``colptr[c]:colptr[c + 1]``.
        row: (E,) the row of each entry, in column order.
        perm: (E,) the position, in row order, of each entry in column order.

    Raises:
        TypeError: they are not tensors, or not all int32 or all int64.
        ValueError: they are not vectors of fitting lengths on one device; pointers do not ascend
            from 0 to E; an index is out of range; or the two orders are of different matrices.
    """

    rowptr: Tensor
    col: Tensor
    colptr: Tensor
    row: Tensor
    perm: Tensor
    # Of :func:`known_sparsity` alone. What ``dataclasses.replace`` makes does not have it.
    _is_known: InitVar[bool] = False

    def __post_init__(self, _is_known: bool) -> None:
        if _is_known:
            return
        _check_types(self)
        for name in _NAMES:
            object.__setattr__(self, name, getattr(self, name).contiguous())
        if has_numbers(*self.tensors):
            _check_numbers(self)

    def __getattr__(self, name: str) -> Tensor:
        # The other direction of a matrix that known_rows made is sorted where it is asked for.
        if name not in BY_COLUMN or "num_cols" not in vars(self):
            raise AttributeError(name)
        with lasting(self.col):
            made = transposed_rows(self.rowptr, self.col, vars(self)["num_cols"])
        found = dict(zip(BY_COLUMN, made, strict=True))
        if not torch.compiler.is_compiling():  # whose tensors are those of a graph
            vars(self).update(found)
        return found[name]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """``rowptr``, ``col``, ``colptr``, ``row``, ``perm``."""
        return self.rowptr, self.col, self.colptr, self.row, self.perm

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        known = vars(self).get("num_cols")
        return self.rowptr.numel() - 1, self.colptr.numel() - 1 if known is None else known

    @property
    def num_entries(self) -> int:
        """E, repeated entries counted each."""
        return self.col.numel()

    def to(self, device: torch.device | str) -> Sparsity:
        """The same on another device."""
        return known_sparsity(*(tensor.to(device) for tensor in self.tensors))


def known_sparsity(
    rowptr: Tensor, col: Tensor, colptr: Tensor, row: Tensor, perm: Tensor
) -> Sparsity:
    """A :class:`Sparsity` of contiguous tensors that fit by the way they were made: no check."""
    return Sparsity(rowptr, col, colptr, row, perm, _is_known=True)


def known_rows(rowptr: Tensor, col: Tensor, num_cols: int) -> Sparsity:
    """The same by row alone: the columns are sorted if something asks for them, as gradients do."""
    if torch.compiler.is_compiling():  # which cannot come back to it
        return known_sparsity(rowptr, col, *transposed_rows(rowptr, col, num_cols))
    made = object.__new__(Sparsity)
    vars(made).update(rowptr=rowptr, col=col, num_cols=num_cols)
    return made


BY_COLUMN = ("colptr", "row", "perm")
_NAMES = ("rowptr", "col", *BY_COLUMN)


def _check_types(sparsity: Sparsity) -> None:
    for name in _NAMES:
        check_integers(name, getattr(sparsity, name))
    dtypes = {tensor.dtype for tensor in sparsity.tensors}
    if len(dtypes) > 1:
        raise RefusedType(
            refusal("a sparsity has integers of one type", "one type", sorted(map(str, dtypes)))
        )
    devices = {str(tensor.device) for tensor in sparsity.tensors}
    if len(devices) > 1:
        raise RefusedValue(
            refusal("a sparsity is on one device", "one device", ", ".join(sorted(devices)))
        )
    for name in ("rowptr", "colptr"):
        if not getattr(sparsity, name).numel():
            raise RefusedValue(refusal(f"{name} begins with 0", "at least one number", "none"))
    for name in ("row", "perm"):
        if getattr(sparsity, name).numel() != sparsity.num_entries:
            raise RefusedValue(
                refusal(
                    f"{name} has a number for each entry of col",
                    sparsity.num_entries,
                    getattr(sparsity, name).numel(),
                )
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
            refusal("perm names every entry", "each position once", "one that comes twice")
        )
    row = _node_of_each(sparsity.rowptr, entries).index_select(0, perm)
    col = _node_of_each(sparsity.colptr, entries)
    same = (row == sparsity.row) & (sparsity.col.index_select(0, perm) == col)
    if not bool(same.all()):
        raise RefusedValue(
            refusal(
                "rows and columns list the same entries",
                "row == row of perm, and col[perm] == the column of each entry by column",
                f"{int((~same).sum())} that differ",
            )
        )


def _node_of_each(ptr: Tensor, entries: int) -> Tensor:
    """(E,) the row of each entry, in row order, of its pointers."""
    nodes = torch.arange(ptr.numel() - 1, dtype=ptr.dtype, device=ptr.device)
    return nodes.repeat_interleave(ptr.diff(), output_size=entries)
