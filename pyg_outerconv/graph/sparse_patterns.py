"""Patterns of sparse features made from others, with the entries of these that each has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import RefusedValue
from ..kernels import Sparsity
from ..kernels.edge_lists import pointers, spread, transposed_rows
from ..kernels.index_checks import check_indices, check_integers, check_pointers
from ..kernels.sparsity import BY_COLUMN, known_rows, known_sparsity
from .sparse_matrix import SparseMatrix, index_dtype

_MARK = "is_canonical"  # in the attributes of a Sparsity, once it is known


def row_of_each(sparsity: Sparsity) -> Tensor:
    """(E,) the row of each entry, in row order."""
    rows = torch.arange(
        sparsity.shape[0], dtype=sparsity.rowptr.dtype, device=sparsity.rowptr.device
    )
    return spread(rows, sparsity.rowptr, sparsity.num_entries)


def place_of_each(sparsity: Sparsity) -> Tensor:
    """(E,) the place r · C + c of each entry in the dense matrix stored row by row, int64."""
    return row_of_each(sparsity).long() * sparsity.shape[1] + sparsity.col


def is_canonical(sparsity: Sparsity) -> bool:
    """Whether the columns of each row ascend without repeats; found out once for a pattern."""
    known = vars(sparsity).get(_MARK)
    if known is None:
        known = bool((place_of_each(sparsity).diff() > 0).all())
        mark_canonical(sparsity, known)
    return bool(known)


def settle(sparsity: Sparsity) -> bool:
    """Whether it is canonical, and by column too, for a compiled graph that cannot find out later.

    A compiler takes real features apart within the modes in which it traces.
    """
    is_real = type(sparsity.col) is Tensor
    with _disable_current_modes() if is_real else nullcontext():
        if is_real and "perm" not in vars(sparsity):
            by_column = transposed_rows(sparsity.rowptr, sparsity.col, sparsity.shape[1])
            vars(sparsity).update(zip(BY_COLUMN, by_column, strict=True))
        return is_canonical(sparsity)


def mark_canonical(sparsity: Sparsity, known: bool = True) -> Sparsity:
    """The pattern itself, of which it is now known whether it is canonical."""
    vars(sparsity)[_MARK] = known
    return sparsity


def _marked_as(sparsity: Sparsity, *made_of: Sparsity) -> Sparsity:
    """The pattern, known to be canonical if those that it was made of are."""
    marks = [vars(one).get(_MARK) for one in made_of]
    return mark_canonical(sparsity) if all(marks) else sparsity


def canonical(x: SparseMatrix) -> SparseMatrix:
    """The matrix with sorted columns and without repeats, whose values are added up."""
    if is_canonical(x.sparsity):
        return x
    place, index = torch.unique(place_of_each(x.sparsity), return_inverse=True)
    value = x.value.new_zeros(place.numel()).index_add(0, index, x.value)
    return SparseMatrix(pattern_of(place, x.sparsity.shape), value)


def pattern_of(place: Tensor, shape: tuple[int, int]) -> Sparsity:
    """The pattern (R × C) of ascending places r · C + c without repeats, int64."""
    rows, columns = shape
    dtype = index_dtype(rows, columns, place.numel())
    width = max(1, columns)
    ptr = pointers((place // width).to(dtype), rows)
    return mark_canonical(known_rows(ptr, (place % width).to(dtype), columns))


def checked_rows(ptr: Tensor, column: Tensor, num_columns: int) -> Sparsity:
    """A pattern from a file or another process, after checks of its pointers and columns.

    Raises:
        TypeError: they are not vectors of integers.
        ValueError: pointers do not ascend to the number of entries, or a column is out of range.
    """
    check_integers("rowptr", ptr)
    check_integers("col", column)
    if ptr.dtype != column.dtype or not ptr.numel() or num_columns < 0:
        rule = "pointers and columns of sparse features have one dtype, and rows a pointer more"
        raise RefusedValue(rule, column.dtype, f"{ptr.dtype}, {ptr.numel()} pointers")
    if not ptr.is_meta:
        check_pointers("rowptr", ptr, column.numel())
        check_indices("col", column, num_columns)
    return known_rows(ptr.contiguous(), column.contiguous(), num_columns)


def picked_rows(sparsity: Sparsity, index: Tensor) -> tuple[Sparsity, Tensor]:
    """The rows ``index`` (in range, in any order, with repeats), and the entry of each entry."""
    start = sparsity.rowptr.index_select(0, index).long()
    count = sparsity.rowptr.diff().index_select(0, index).long()
    ptr = torch.zeros(index.numel() + 1, dtype=torch.int64, device=index.device)
    torch.cumsum(count, 0, out=ptr[1:])
    total = int(ptr[-1])
    entry = torch.arange(total, device=index.device)
    entry += torch.repeat_interleave(start - ptr[:-1], count, output_size=total)
    dtype = index_dtype(index.numel(), sparsity.shape[1], total)
    column = sparsity.col.index_select(0, entry).to(dtype)
    return _marked_as(known_rows(ptr.to(dtype), column, sparsity.shape[1]), sparsity), entry


def sliced_rows(sparsity: Sparsity, start: int, stop: int) -> tuple[Sparsity, slice]:
    """The rows from ``start`` to ``stop``, and the slice of their entries."""
    ptr = sparsity.rowptr[start : stop + 1]
    entries = slice(int(ptr[0]), int(ptr[-1]))
    column = sparsity.col[entries]
    return _marked_as(known_rows(ptr - ptr[0], column, sparsity.shape[1]), sparsity), entries


def transposed(sparsity: Sparsity) -> tuple[Sparsity, Tensor]:
    """The transpose, and the entry of each of its entries. Nothing is sorted a second time."""
    perm = sparsity.perm
    back = torch.empty_like(perm)
    back[perm.long()] = torch.arange(perm.numel(), dtype=perm.dtype, device=perm.device)
    by_column = sparsity.colptr, sparsity.row, sparsity.rowptr, sparsity.col, back
    return _marked_as(known_sparsity(*by_column), sparsity), perm


def stacked_rows(parts: Sequence[Sparsity]) -> Sparsity:
    """The patterns below each other; entries follow one another as those of the parts."""
    total, rows = sum(one.num_entries for one in parts), sum(one.shape[0] for one in parts)
    dtype = index_dtype(total, rows, parts[0].shape[1])
    pieces, before = [torch.zeros(1, dtype=dtype, device=parts[0].col.device)], 0
    for one in parts:
        pieces.append(one.rowptr[1:].to(dtype) + before)
        before += one.num_entries
    column = torch.cat([one.col.to(dtype) for one in parts])
    return _marked_as(known_rows(torch.cat(pieces), column, parts[0].shape[1]), *parts)


def stacked_columns(parts: Sequence[Sparsity]) -> tuple[Sparsity, Tensor]:
    """The patterns beside each other, and the entry of each entry in those of all parts in turn."""
    total, columns = sum(one.num_entries for one in parts), sum(one.shape[1] for one in parts)
    dtype = index_dtype(total, columns, parts[0].shape[0])
    device = parts[0].col.device
    ptr = torch.stack([one.rowptr.to(dtype) for one in parts]).sum(0).to(dtype)
    place = torch.empty(total, dtype=torch.int64, device=device)
    column = torch.empty(total, dtype=dtype, device=device)
    first = ptr[:-1].clone()  # where the entries of the next part begin in each row
    entries = offset = 0
    for one in parts:
        own = one.rowptr.to(dtype)
        at = torch.arange(one.num_entries, dtype=dtype, device=device)
        at += spread(first - own[:-1], own, one.num_entries)
        at = at.long()
        place[at] = torch.arange(entries, entries + one.num_entries, device=device)
        column[at] = one.col.to(dtype) + offset
        first += own.diff()
        entries, offset = entries + one.num_entries, offset + one.shape[1]
    return _marked_as(known_rows(ptr, column, columns), *parts), place


def united(x: SparseMatrix, y: SparseMatrix) -> tuple[Sparsity, Tensor, Tensor]:
    """The pattern of the entries of either matrix, and the values of both on it."""
    if x.sparsity is y.sparsity:
        return x.sparsity, x.value, y.value
    places = torch.cat([place_of_each(x.sparsity), place_of_each(y.sparsity)])
    place, index = torch.unique(places, return_inverse=True)
    ours, theirs = index[: x.num_entries], index[x.num_entries :]
    value = x.value.new_zeros(place.numel()).index_add(0, ours, x.value)
    other = y.value.new_zeros(place.numel()).index_add(0, theirs, y.value)
    return pattern_of(place, x.sparsity.shape), value, other
