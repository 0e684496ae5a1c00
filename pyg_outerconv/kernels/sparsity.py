"""The pattern of one sparse matrix, ready to be multiplied from both sides."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import RefusedType, RefusedValue, refusal


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

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """``rowptr``, ``col``, ``colptr``, ``row``, ``perm``."""
        return self.rowptr, self.col, self.colptr, self.row, self.perm

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.rowptr.numel() - 1, self.colptr.numel() - 1

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


def has_numbers(*tensors: Tensor | None) -> bool:
    """Whether entries can be looked at: not without memory, nor while a compiler traces."""
    return not torch.compiler.is_compiling() and not any(
        tensor is not None and (tensor.is_meta or isinstance(tensor, FakeTensor))
        for tensor in tensors
    )


def check_pointers(name: str, ptr: Tensor, count: int) -> None:
    """Refuse pointers (R + 1,) that do not ascend from 0 to ``count``. Looks at numbers.

    Raises:
        ValueError: they do not.
    """
    ends = (int(ptr[0]), int(ptr[-1]))
    if ends != (0, count) or bool((ptr[1:] < ptr[:-1]).any()):
        raise RefusedValue(
            refusal(
                f"{name} ascends to the number of entries",
                f"from 0 to {count}, never falling",
                ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
            )
        )


def check_indices(name: str, index: Tensor, count: int) -> None:
    """Refuse indices outside [0, ``count``). Looks at numbers.

    Raises:
        ValueError: one is.
    """
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise RefusedValue(
            refusal(
                f"every entry of {name} lies in range",
                f"[0, {count})",
                f"[{int(index.min())}, {int(index.max())}]",
            )
        )


_NAMES = ("rowptr", "col", "colptr", "row", "perm")


def check_integers(name: str, index: Any) -> None:
    """Refuse what is not a vector of int32 or int64.

    Raises:
        TypeError: it is no tensor of these.
        ValueError: it has not one dimension.
    """
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
        got = getattr(index, "dtype", type(index).__name__)
        raise RefusedType(refusal(f"{name} holds integers", "torch.int32 or torch.int64", got))
    if index.dim() != 1 or index.layout != torch.strided:
        raise RefusedValue(refusal(f"{name} is a vector", "one dimension", tuple(index.shape)))


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
