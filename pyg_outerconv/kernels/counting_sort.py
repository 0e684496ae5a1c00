"""Stable sorting by small whole numbers, in one pass over counts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from .index_checks import has_numbers

FEW = 2**14
"""So few entries numpy sorts by their bits, in less time than it takes to make scipy's matrices."""


def counting_sort(key: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The stable order of some numbers, and where each number's entries begin in it.

    On a CPU it is no sort by comparison, which takes some ten times as long: entries are counted,
    being the columns of a matrix with one non-zero each, in row ``key``, which scipy turns from
    columns to rows; few of them are sorted by their bits.

    Args:
        key: (E,) int32 or int64 in [0, ``count``).
        count: R.

    Returns:
        ``ptr`` (R + 1,) and ``order`` (E,), of the type of ``key``: the entries of r are
        ``order[ptr[r]:ptr[r + 1]]``.
    """
    if _can_read(key):
        numbers = key.detach().numpy()
        if (numbers[1:] >= numbers[:-1]).all():  # as samplers deliver them
            return pointers(key, count), torch.arange(key.numel(), dtype=key.dtype)
        if numbers.size <= FEW and count <= 2**16:
            order = np.argsort(numbers.astype(np.uint16), kind="stable")
            return pointers(key, count), _of(order, key)
        from scipy.sparse import csc_array

        entries = np.arange(numbers.size + 1, dtype=numbers.dtype)
        ones = np.empty(numbers.size, dtype=np.int8)  # nobody looks at them
        rows = csc_array((ones, numbers, entries), shape=(count, numbers.size)).tocsr()
        return _of(rows.indptr, key), _of(rows.indices, key)
    return pointers(key, count), torch.sort(key, stable=True).indices.to(key.dtype)


def sort_pairs(
    node: Tensor, num_nodes: int, label: Tensor | None, num_labels: int
) -> tuple[Tensor, Tensor]:
    """The stable order by node, then label, and where each node's entries begin in it.

    Args:
        node: (E,) int32 or int64 in [0, R).
        num_nodes: R.
        label: (E,) of the same type in [0, K), or None where K = 1.
        num_labels: K.

    Returns:
        ``ptr`` (R + 1,) and ``order`` (E,).
    """
    if label is None or num_labels <= 1:
        return counting_sort(node, num_nodes)
    if not _can_read(node) or num_labels > 4 * node.numel():  # too many to be counted
        order = torch.sort(node * num_labels + label, stable=True).indices.to(node.dtype)
        return pointers(node, num_nodes), order
    if num_nodes * num_labels <= 4 * node.numel():
        ptr, order = counting_sort(node * num_labels + label, num_nodes * num_labels)
        return ptr[::num_labels].contiguous(), order
    _, by_label = counting_sort(label, num_labels)  # most pairs have no entry
    ptr, order = counting_sort(node.index_select(0, by_label), num_nodes)
    return ptr, by_label.index_select(0, order)


def turned_round(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The transpose of a CSR matrix: its pointers, its indices, and where its entries come from.

    Args:
        ptr: (R + 1,) row pointers.
        index: (E,) the column of each entry, repeats allowed.
        count: C, the number of columns.

    Returns:
        ``ptr`` (C + 1,), ``index`` (E,), the row of each entry in column order, and ``perm`` (E,),
        the position of each of these in row order.
    """
    if _can_read(index) and index.numel() > FEW:
        from scipy.sparse import csr_array

        rows, columns = ptr.numel() - 1, index.detach().numpy()
        places = np.arange(columns.size, dtype=columns.dtype)
        matrix = csr_array((places, columns, ptr.numpy()), shape=(rows, count)).tocsc()
        return _of(matrix.indptr, index), _of(matrix.indices, index), _of(matrix.data, index)
    colptr, perm = counting_sort(index, count)
    row = torch.arange(ptr.numel() - 1, dtype=index.dtype, device=index.device)
    row = row.repeat_interleave(ptr.diff(), output_size=index.numel())
    return colptr, row.index_select(0, perm), perm


def pointers(row: Tensor, count: int) -> Tensor:
    """(R + 1,) where the entries of each row begin, for the row (E,) of each entry."""
    if row.is_meta or torch.compiler.is_compiling():  # how many rows bincount finds is not known
        found = row.new_zeros(count).index_add(0, row, torch.ones_like(row))
        return torch.cat([row.new_zeros(1), found.cumsum(0).to(row.dtype)])
    ptr = row.new_zeros(count + 1)
    torch.cumsum(torch.bincount(row, minlength=count), 0, out=ptr[1:])
    return ptr


def _can_read(index: Tensor) -> bool:
    """Whether numpy can look at it, and nothing wants to see what is done with it."""
    return (
        index.is_cpu
        and has_numbers(index)
        and not is_functorch_wrapped_tensor(index)
        and not torch.jit.is_tracing()
        and _len_torch_dispatch_stack() == 0
    )


def _of(numbers: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.dtype)
