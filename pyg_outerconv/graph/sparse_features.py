"""Sparse node features: where the entries of X are, prepared once, and their values."""

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
from ..theta.autocast import autocast_pair
from .sparse_pattern import Prepared, check_sparse, index_dtype, prepare

_known = IdentityCache()


@dataclass(frozen=True, eq=False, repr=False)
class SparseFeatures:
    """X (M, P) of E entries, ready to be multiplied from both sides.

    A layer makes it of a ``torch.sparse`` tensor by :meth:`of`. It may be given instead of one
    where the places of the entries stay and their values change, see :meth:`with_values`, and
    under ``torch.compile``, which reads no sparse tensors.

    Attributes:
        sparsity: where the entries are; within a row in the order of their columns.
        value: (E,) floating point, in row order; may carry gradients.

    Raises:
        ValueError: there is not one value for each entry, or they are on another device.
        TypeError: values are not floating point.
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
                refusal("values must be where the pattern is", entries.device, value.device)
            )

    @staticmethod
    def of(x: Tensor) -> SparseFeatures:
        """The features that a ``torch.sparse`` tensor (M, P) holds: CSR, COO or CSC.

        Repeated entries add up. Sorting is done once for each tensor object, as long as it is not
        changed in place. Gradients reach the tensor, or what its values were made of.

        Raises:
            ValueError: it has other dimensions than two, dense ones, or indices out of range; or it
                requires gradients and has indices that are not sorted, or come twice, which torch
                itself gets wrong.
            TypeError: it is not floating point, or of a block layout.
        """
        if torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x):
            return SparseFeatures._read(x)
        # torch.func has no place for the parts of compressed matrices.
        with torch._C._DisableFuncTorch():
            return SparseFeatures._read(x)

    @staticmethod
    def _read(x: Tensor) -> SparseFeatures:
        anchor, x = x, settled(x)
        prepared: Prepared = _known.get(anchor, (), "pattern", lambda: prepare(x))
        if x.requires_grad and not prepared.regular:
            # torch's gradient of values() sorts them first, and then they are in the wrong places.
            raise RefusedValue(
                refusal(
                    "sparse features that require gradients must be in torch's order",
                    "sorted indices without repeats",
                    f"others in a matrix of layout {x.layout}",
                )
            )
        # No view of a sparse tensor, which torch.compile could not read.
        value = x.values().clone() if x.requires_grad else x.values().detach()
        if prepared.order is not None:
            value = value.index_select(0, prepared.order)
        return SparseFeatures(prepared.sparsity, value)

    def with_values(self, value: Tensor) -> SparseFeatures:
        """The same places with other values (E,), in row order; nothing is sorted."""
        return SparseFeatures(self.sparsity, value)

    def to(self, target: torch.device | str | torch.dtype) -> SparseFeatures:
        """On another device, or of another type."""
        value = self.value.to(target)
        return SparseFeatures(self.sparsity.to(value.device), value)

    # What a dense X would answer ------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """(M, P)."""
        return torch.Size(self.sparsity.shape)

    @property
    def num_entries(self) -> int:
        """E, zeros that are spelled out included."""
        return self.sparsity.num_entries

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.value.device

    def dim(self) -> int:
        """2: sparse features have no batch dimensions."""
        return 2

    def size(self, dim: int) -> int:
        """M or P."""
        return self.sparsity.shape[dim]

    def is_floating_point(self) -> bool:
        """True: they are features, not indices of nodes."""
        return True

    # Products -------------------------------------------------------------------------------------

    def times(self, weight: Tensor) -> Tensor:
        """X W for W (P, Q): (M, Q)."""
        return self.transform(weight[None, None]).squeeze(1)

    def transform(self, theta: Tensor) -> Tensor:
        """X Θ_k for every label of Θ (K, G, P/G, Q/G): (M, K, Q), in one sparse product.

        Under autocast it is computed in autocast's type, as a dense product is.
        """
        num_labels, groups, rows, columns = theta.shape
        value, theta = autocast_pair(self.value, theta)
        wide = theta.permute(1, 2, 0, 3).reshape(groups * rows, num_labels * columns)
        out = spmm(self._by_group(groups), value, wide)
        blocks = out.view(self.size(0), groups, num_labels, columns)
        return blocks.transpose(1, 2).reshape(self.size(0), num_labels, groups * columns)

    def _by_group(self, groups: int) -> Sparsity:
        """The (M·G) × P matrix in which row m·G + g holds what row m has in block g of columns.

        Entries of a row are sorted by column, so their order stays.
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


# Spelled as PyG, which reads the types of the layer, can read it.
Features = Union[Tensor, SparseFeatures, None]  # noqa: UP007
"""X: dense features, sparse ones, indices of nodes (integers), or None."""


def settled(x: Tensor) -> Tensor:
    """A ``torch.sparse`` tensor with repeated entries of a COO matrix added up.

    Done once for each tensor object, but for one that requires gradients, at every call.

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
    """A settled ``torch.sparse`` tensor with other values, whose pattern is not prepared again.

    ``value`` (E,) is in the order of ``x.values()``; the layout stays, and gradients reach it.
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
