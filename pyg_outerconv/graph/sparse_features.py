"""Sparse node features, and the sorted pattern of a ``torch.sparse`` matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..cache import IdentityCache
from ..errors import RefusedType, RefusedValue
from ..kernels import Sparsity, spmm
from ..kernels.edge_lists import pointers
from ..kernels.sparsity import known_rows, known_sparsity
from ..theta.theta import autocast_pair

_INT32_LIMIT = 2**31 - 1
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
            "pointers of sparse features must ascend to the number of entries",
            f"from 0 to {index.numel()}",
            ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
        )
    return torch.repeat_interleave(counts)


_known = IdentityCache()


@dataclass(frozen=True, eq=False, repr=False)
class SparseFeatures:
    """Sparse X (M, P) of E entries, sorted by row and by column.

    Layers build it from a ``torch.sparse`` tensor by :meth:`of`. Pass it instead of such a tensor
    if values change but the pattern does not (:meth:`with_values`), or under ``torch.compile``,
    which cannot read sparse tensors.

    Attributes:
        sparsity: the pattern; entries of a row are sorted by column.
        value: (E,) floating point, in row order; may require gradients.

    Raises:
        ValueError: there is not one value for each entry, or they are on another device.
        TypeError: ``value`` is not floating point.
    """

    sparsity: Sparsity
    value: Tensor

    def __post_init__(self) -> None:
        value, entries = self.value, self.sparsity.col
        if value.shape != entries.shape:
            raise RefusedValue(
                "sparse features need a value for each entry",
                tuple(entries.shape),
                tuple(value.shape),
            )
        if not value.is_floating_point():
            raise RefusedType(
                "sparse features hold floating point values", "torch.float32", value.dtype
            )
        if value.device != entries.device:
            raise RefusedValue(
                "values must be on the pattern's device", entries.device, value.device
            )

    @staticmethod
    def of(x: Tensor) -> SparseFeatures:
        """Sparse features from a ``torch.sparse`` tensor (M, P): CSR, COO or CSC.

        Repeated entries are summed. The pattern is sorted once per tensor object, until the tensor
        is changed in place. Gradients flow to the tensor.

        Raises:
            ValueError: the tensor is not a matrix, has dense dimensions or indices out of range; or
                it requires gradients and its indices are unsorted or repeated, for which torch
                computes wrong gradients.
            TypeError: the tensor is not floating point, or has a block layout.
        """
        if torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x):
            return SparseFeatures._read(x)
        # torch.func cannot wrap the pointers and indices of compressed matrices.
        with torch._C._DisableFuncTorch():
            return SparseFeatures._read(x)

    @staticmethod
    def _read(x: Tensor) -> SparseFeatures:
        anchor, x = x, coalesced(x)
        prepared: Prepared = _known.get(anchor, (), "pattern", lambda: prepare(x))
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
        return SparseFeatures(prepared.sparsity, value)

    def with_values(self, value: Tensor) -> SparseFeatures:
        """The same pattern with other values (E,), in row order."""
        return SparseFeatures(self.sparsity, value)

    def to(self, target: torch.device | str | torch.dtype) -> SparseFeatures:
        """The same features on another device or in another dtype."""
        value = self.value.to(target)
        return SparseFeatures(self.sparsity.to(value.device), value)

    # The interface of a dense X -------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """(M, P)."""
        return torch.Size(self.sparsity.shape)

    @property
    def num_entries(self) -> int:
        """Number of entries E, stored zeros included."""
        return self.sparsity.num_entries

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """The device of the pattern and the values."""
        return self.value.device

    def dim(self) -> int:
        """2: sparse features have no batch dimensions."""
        return 2

    def size(self, dim: int) -> int:
        """M or P."""
        return self.sparsity.shape[dim]

    def is_floating_point(self) -> bool:
        """True: these are features, not indices of nodes."""
        return True

    # Products -------------------------------------------------------------------------------------

    def times(self, weight: Tensor) -> Tensor:
        """X W for W (P, Q): (M, Q)."""
        return self.transform(weight[None, None]).squeeze(1)

    def transform(self, theta: Tensor) -> Tensor:
        """X Θ_k for every label of Θ (K, G, P/G, Q/G): (M, K, Q), in one sparse product.

        Under autocast it is computed in autocast's dtype, as a dense product is.
        """
        num_labels, groups, rows, columns = theta.shape
        value, theta = autocast_pair(self.value, theta)
        wide = theta.permute(1, 2, 0, 3).reshape(groups * rows, num_labels * columns)
        out = spmm(self._by_group(groups), value, wide)
        blocks = out.view(self.size(0), groups, num_labels, columns)
        return blocks.transpose(1, 2).reshape(self.size(0), num_labels, groups * columns)

    def _by_group(self, groups: int) -> Sparsity:
        """The (M·G) × P pattern whose row m·G + g has the entries of row m in column block g.

        Entries of a row are sorted by column, so the order of values does not change.
        """
        if groups == 1:
            return self.sparsity
        num_rows, num_columns = self.shape
        row_of_column_order, perm = self.sparsity.row, self.sparsity.perm
        dtype = index_dtype(num_rows * groups, num_columns, self.num_entries)
        width = max(1, num_columns // groups)
        column = torch.arange(num_columns, device=self.device, dtype=dtype)
        column = column.repeat_interleave(self.sparsity.colptr.diff())
        row = row_of_column_order.to(dtype) * groups + column // width
        pointer = torch.zeros(num_rows * groups + 1, dtype=dtype, device=self.device)
        torch.cumsum(torch.bincount(row, minlength=num_rows * groups), 0, out=pointer[1:])
        col, colptr = self.sparsity.col.to(dtype), self.sparsity.colptr.to(dtype)
        return known_sparsity(pointer, col, colptr, row, perm.to(dtype))

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"SparseFeatures({rows} x {columns}, entries={self.num_entries}, {self.dtype}, "
            f"device={str(self.device)!r})"
        )


# A Union, because PyG parses the annotations of a layer and does not know ``|``.
Features = Union[Tensor, SparseFeatures, None]  # noqa: UP007
"""X: dense features, sparse ones, indices of nodes (integers), or None."""


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
    out: Tensor = _known.get(x, (), "coalesced", x.coalesce)
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
    prepared = _known.get(x, (), "pattern", lambda: prepare(x))
    _known.get(out, (), "pattern", lambda: prepared)
    return out
