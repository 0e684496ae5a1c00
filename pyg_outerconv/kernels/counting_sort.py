"""Stable sorting by small whole numbers, in one pass over counts."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from .index_checks import can_read


def counting_sort(key: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The stable order of some numbers, and where each number's entries begin in it.

    Args:
        key: (E,) int32 or int64 in [0, ``count``).
        count: R.

    Returns:
        ``ptr`` (R + 1,) and ``order`` (E,), of the type of ``key``: the entries of r are
        ``order[ptr[r]:ptr[r + 1]]``.
    """
    ptr, _, order = by_rows(key, key, count)
    return ptr, order


def by_rows(row: Tensor, column: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries of a sparse matrix, row by row, and within a row in the order given.

    On a CPU it is no sort by comparison, which takes some ten times as long: scipy counts the
    entries of each row and puts each into its place.

    Args:
        row, column: (E,) int32 or int64, rows in [0, ``count``).
        count: R.

    Returns:
        ``ptr`` (R + 1,) row pointers, ``column`` (E,) sorted, and ``order`` (E,), the position of
        each entry in the list given.
    """
    if not can_read(row):
        order = torch.sort(row, stable=True).indices.to(row.dtype)
        return pointers(row, count), column.index_select(0, order), order
    rows, entries = row.detach().numpy(), np.arange(row.numel(), dtype=_TYPES[row.dtype])
    if (rows[1:] >= rows[:-1]).all():  # as samplers deliver them
        return pointers(row, count), column.clone(), torch.from_numpy(entries)
    tools = scipy_tools()
    if tools is None:
        order = torch.from_numpy(rows.argsort(kind="stable")).to(row.dtype)
        return pointers(row, count), column.index_select(0, order), order
    ptr, columns, order = np.empty(count + 1, rows.dtype), *np.empty((2, rows.size), rows.dtype)
    tools.coo_tocsr(count, 0, rows.size, rows, column.numpy(), entries, ptr, columns, order)
    return torch.from_numpy(ptr), torch.from_numpy(columns), torch.from_numpy(order)


def sort_edges(
    node: Tensor, other: Tensor, num_nodes: int, label: Tensor | None, num_labels: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Edges by one end, then label, then as given.

    Args:
        node: (E,) int32 or int64 in [0, R): the end that they are sorted by.
        other: (E,) of the same type: the other end.
        num_nodes: R.
        label: (E,) of the same type in [0, K), or None where K = 1.
        num_labels: K.

    Returns:
        ``ptr`` (R + 1,) where the edges of each node begin, ``other`` (E,) sorted, ``order`` (E,),
        and where those of each node and label begin, (R·K + 1,), if that was found on the way.
    """
    if label is None or num_labels <= 1:
        ptr, other, order = by_rows(node, other, num_nodes)
        return ptr, other, order, ptr if num_labels == 1 else None
    if not can_read(node) or num_labels > 4 * node.numel():  # too many to be counted
        order = torch.sort(node * num_labels + label, stable=True).indices.to(node.dtype)
        return pointers(node, num_nodes), other.index_select(0, order), order, None
    if num_nodes * num_labels <= 4 * node.numel():
        ptr, other, order = by_rows(node * num_labels + label, other, num_nodes * num_labels)
        return ptr[::num_labels].contiguous(), other, order, ptr
    _, other, by_label = by_rows(label, other, num_labels)  # most pairs have no entry
    ptr, other, order = by_rows(node.index_select(0, by_label), other, num_nodes)
    return ptr, other, by_label.index_select(0, order), None


def transposed_rows(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The transpose of a CSR matrix: its pointers, its indices, and where its entries come from.

    Args:
        ptr: (R + 1,) row pointers.
        index: (E,) the column of each entry, repeats allowed.
        count: C, the number of columns.

    Returns:
        ``ptr`` (C + 1,), ``index`` (E,), the row of each entry in column order, and ``perm`` (E,),
        the position of each of these in row order.
    """
    row = torch.arange(ptr.numel() - 1, dtype=index.dtype, device=index.device)
    return by_rows(index, spread(row, ptr, index.numel()), count)


def spread(numbers: Tensor, ptr: Tensor, num_entries: int) -> Tensor:
    """(E,) of numbers (R,) of rows the one of each entry's row, for row pointers (R + 1,)."""
    if can_read(ptr):
        return torch.from_numpy(np.repeat(numbers.numpy(), np.diff(ptr.numpy())))
    return numbers.repeat_interleave(ptr.diff(), output_size=num_entries)


def pointers(row: Tensor, count: int) -> Tensor:
    """(R + 1,) where the entries of each row begin, for the row (E,) of each entry."""
    if row.is_meta or torch.compiler.is_compiling() or _len_torch_dispatch_stack():
        # How many rows bincount finds is not known where shapes alone are.
        found = row.new_zeros(count).index_add(0, row, torch.ones_like(row))
        return torch.cat([row.new_zeros(1), found.cumsum(0).to(row.dtype)])
    ptr = row.new_zeros(count + 1)
    torch.cumsum(torch.bincount(row, minlength=count), 0, out=ptr[1:])
    return ptr


_TYPES = {torch.int32: np.int32, torch.int64: np.int64}


@cache
def scipy_tools() -> Any:
    """The functions that scipy's sparse matrices are made of; None if it has them no longer.

    Its matrices check what they are made of, which takes four times as long as making them.
    """
    name = "scipy.sparse._sparsetools"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None
