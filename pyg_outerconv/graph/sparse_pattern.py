"""The sparsity pattern of a ``torch.sparse`` matrix, checked and sorted by row and by column."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from ..kernels import Sparsity
from ..kernels.counting_sort import pointers
from ..kernels.sparsity import known_rows

_INT32_LIMIT = 2**31 - 1
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Prepared(NamedTuple):
    """The pattern of a torch.sparse tensor, and the permutation of its values into row order.

    ``order`` (E,) is the position of each entry in the tensor; None for the identity.
    ``regular`` says whether the tensor's own indices are sorted without repeats.
    """

    sparsity: Sparsity
    order: Tensor | None
    regular: bool


def check_sparse(x: Tensor) -> None:
    """Refuse a tensor that is not a floating point sparse matrix in COO, CSR or CSC layout.

    Raises:
        ValueError: the tensor is not a matrix, or has dense dimensions.
        TypeError: it is not floating point, or has another layout.
    """
    if x.layout not in LAYOUTS:
        raise RefusedType(
            refusal(
                "sparse features must have one number per entry",
                "torch.sparse_csr, torch.sparse_coo or torch.sparse_csc",
                x.layout,
            )
        )
    if x.dim() != 2 or (x.layout == torch.sparse_coo and x.dense_dim()):
        expected = "shape (M, P), without batch and without dense dimensions"
        raise RefusedValue(refusal("sparse features must be a matrix", expected, tuple(x.shape)))
    if not x.is_floating_point():
        raise RefusedType(
            refusal("sparse features must be floating point", "torch.float32", x.dtype)
        )


def prepare(x: Tensor) -> Prepared:
    """Sort the entries of a sparse matrix by row, then column, and by column.

    Raises:
        ValueError: indices or pointers are out of range.
    """
    num_rows, num_columns = x.shape
    row, column = _places(x.detach())
    for name, index, count in (("row", row, num_rows), ("column", column, num_columns)):
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < count:
            raise RefusedValue(
                refusal(
                    f"every {name} of sparse features must lie in range",
                    f"[0, {count})",
                    f"[{int(index.min())}, {int(index.max())}]",
                )
            )
    key, order = row * num_columns + column, None
    own = column * num_rows + row if x.layout == torch.sparse_csc else key
    regular = bool((own.diff() > 0).all())
    if bool((key.diff() < 0).any()):
        order = torch.sort(key, stable=True).indices
        row, column = row[order], column[order]
    dtype = index_dtype(num_rows, num_columns, row.numel())
    ptr = pointers(row.to(dtype), num_rows)
    return Prepared(known_rows(ptr, column.to(dtype), num_columns), order, regular)


def index_dtype(*counts: int) -> torch.dtype:
    """int32 if it can hold all these numbers, else int64."""
    return torch.int32 if max(counts) < _INT32_LIMIT else torch.int64


def _places(x: Tensor) -> tuple[Tensor, Tensor]:
    """(E,) the row and the column of each entry, int64, in the order of ``x.values()``."""
    if x.layout == torch.sparse_coo:
        row, column = x.indices()
        return row, column
    if x.layout == torch.sparse_csr:
        return _spread(x.crow_indices(), x.col_indices()), x.col_indices().long()
    return x.row_indices().long(), _spread(x.ccol_indices(), x.row_indices())


def _spread(ptr: Tensor, index: Tensor) -> Tensor:
    """(E,) the row of each entry of a compressed layout, after a check of its pointers."""
    counts = ptr.long().diff()
    ends = (int(ptr[0]), int(ptr[-1]))
    if ends != (0, index.numel()) or bool((counts < 0).any()):
        raise RefusedValue(
            refusal(
                "pointers of sparse features must ascend to the number of entries",
                f"from 0 to {index.numel()}",
                ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
            )
        )
    return torch.repeat_interleave(counts)
