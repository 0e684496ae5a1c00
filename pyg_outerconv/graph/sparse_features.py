"""Sparse node features: the sparsity pattern of X, prepared once, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..cache import IdentityCache
from ..errors import RefusedType, RefusedValue, refusal
from ..kernels import Sparsity, spmm
from ..kernels.sparsity import known_sparsity
from ..theta.theta import autocast_pair
from .sparse_pattern import Prepared, check_sparse, index_dtype, prepare

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
                refusal(
                    "sparse features need a value for each entry",
                    tuple(entries.shape),
                    tuple(value.shape),
                )
            )
        if not value.is_floating_point():
            raise RefusedType(
                refusal("sparse features hold floating point values", "torch.float32", value.dtype)
            )
        if value.device != entries.device:
            raise RefusedValue(
                refusal("values must be on the pattern's device", entries.device, value.device)
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
                refusal(
                    "sparse features that require gradients must be in torch's order",
                    "sorted indices without repeats",
                    f"others in a matrix of layout {x.layout}",
                )
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
