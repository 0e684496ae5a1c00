"""The sorted pattern of a ``torch.sparse`` matrix, and its values in that order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..errors import RefusedType, RefusedValue
from ..kernels import Sparsity
from ..kernels.edge_lists import pointers
from ..kernels.sparsity import known_rows
from ..memo import Memo
from .sparse_matrix import SparseMatrix, index_dtype

_known = Memo()
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Prepared(NamedTuple):
    """The pattern of a torch.sparse tensor.

    ``order`` (E,) is the place in the tensor of each entry in row order, None for the identity;
    ``regular``: whether the tensor's own indices are sorted without repeats.
    """

    sparsity: Sparsity
    order: Tensor | None
    regular: bool


def check_sparse(x: Tensor) -> None:
    """Refuse a tensor that is not a floating point sparse matrix in COO, CSR or CSC layout."""
    if x.layout not in LAYOUTS:
        raise RefusedType(
            "sparse features must have one number per entry",
            "torch.sparse_csr, torch.sparse_coo or torch.sparse_csc",
            x.layout,
        )
    if x.dim() != 2 or (x.layout == torch.sparse_coo and x.dense_dim()):
        expected = "shape (M, P), without batch and without dense dimensions"
        raise RefusedValue("sparse features must be a matrix", expected, tuple(x.shape))
    if not x.is_floating_point():
        raise RefusedType("sparse features must be floating point", "torch.float32", x.dtype)


def prepare(x: Tensor) -> Prepared:
    """Sort the entries of a sparse matrix by row, then column, and by column."""
    num_rows, num_columns = x.shape
    row, column = _places(x.detach())
    for name, index, count in (("row", row, num_rows), ("column", column, num_columns)):
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < count:
            raise RefusedValue(
                f"every {name} of sparse features must lie in range",
                f"[0, {count})",
                f"[{int(index.min())}, {int(index.max())}]",
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
            "pointers of sparse features must ascend to the number of entries",
            f"from 0 to {index.numel()}",
            ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
        )
    return torch.repeat_interleave(counts)


def read_sparse(x: Tensor) -> SparseMatrix:
    """The entries of a ``torch.sparse`` tensor, see :meth:`SparseFeatures.of`."""
    if torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x):
        return _read(x)
    # torch.func cannot wrap the pointers and indices of compressed matrices.
    with torch._C._DisableFuncTorch():
        return _read(x)


def _read(x: Tensor) -> SparseMatrix:
    anchor, x = x, coalesced(x)
    prepared: Prepared = _known.get("pattern", lambda: prepare(x), anchor)
    if x.requires_grad and not prepared.regular:
        # torch's gradient of values() sorts the entries first, so it would be in another order.
        raise RefusedValue(
            "sparse features that require gradients must be in torch's order",
            "sorted indices without repeats",
            f"others in a matrix of layout {x.layout}",
        )
    # A copy, because torch.compile cannot read a view of a sparse tensor.
    value = x.values().clone() if x.requires_grad else x.values().detach()
    if prepared.order is not None:
        value = value.index_select(0, prepared.order)
    return SparseMatrix(prepared.sparsity, value)


def coalesced(x: Tensor) -> Tensor:
    """A ``torch.sparse`` tensor, coalesced if it is a COO matrix.

    The result is cached per tensor object, unless the tensor requires gradients.

    Raises:
        ValueError, TypeError: see :meth:`SparseFeatures.of`.
    """
    check_sparse(x)
    if x.layout != torch.sparse_coo or x.is_coalesced():
        return x
    if x.requires_grad:
        return x.coalesce()
    out: Tensor = _known.get("coalesced", x.coalesce, x)
    return out


def replace_values(x: Tensor, value: Tensor) -> Tensor:
    """A ``torch.sparse`` tensor with the pattern of ``x``, coalesced, and other values.

    ``value`` (E,) is in the order of ``x.values()``, and gradients flow to it. The layout stays,
    and the prepared pattern is shared.
    """
    if x.layout == torch.sparse_coo:
        out = torch.sparse_coo_tensor(
            x.indices(), value, x.shape, is_coalesced=True, check_invariants=False
        )
    elif x.layout == torch.sparse_csr:
        out = torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), value, x.shape, check_invariants=False
        )
    else:
        out = torch.sparse_csc_tensor(
            x.ccol_indices(), x.row_indices(), value, x.shape, check_invariants=False
        )
    prepared = _known.get("pattern", lambda: prepare(x), x)
    _known.get("pattern", lambda: prepared, out)
    return out
