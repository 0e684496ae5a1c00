"""Sparse X in the core: a pattern and values, and their products with Θ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..kernels import Sparsity, spmm
from ..kernels.sparsity import known_sparsity
from ..signatures import check_type
from ..theta import autocast_pair

_INT32_LIMIT = 2**31 - 1


def index_dtype(*counts: int) -> torch.dtype:
    """int32 if it can hold all these numbers, else int64."""
    return torch.int32 if max(counts) < _INT32_LIMIT else torch.int64


@dataclass(frozen=True, eq=False, repr=False)
class SparseMatrix:
    """Sparse X (M, P) of E entries, sorted by row and by column.

    It is no tensor: layers work with it, and users with :class:`.SparseFeatures`, a tensor that
    holds one.

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
        value = self.value
        if not (isinstance(self.sparsity, Sparsity) and isinstance(value, Tensor)):
            check_type("sparse features", "sparsity", self.sparsity, Sparsity)
            check_type("sparse features", "value", value, Tensor)
        entries = self.sparsity.col
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

    def with_values(self, value: Tensor) -> SparseMatrix:
        """The same pattern with other values (E,), in row order."""
        return SparseMatrix(self.sparsity, value)

    def to(self, target: torch.device | str | torch.dtype) -> SparseMatrix:
        """The same features on another device or in another dtype."""
        value = self.value.to(target)
        return SparseMatrix(self.sparsity.to(value.device), value)

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
        if num_labels > 1:  # else a permutation would change the strides of the gradient
            theta = theta.permute(1, 2, 0, 3)
        wide = theta.reshape(groups * rows, num_labels * columns)
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
            f"SparseMatrix({rows} x {columns}, entries={self.num_entries}, {self.dtype}, "
            f"device={str(self.device)!r})"
        )


# A Union, because PyG parses the annotations of a layer and does not know ``|``.
Features = Union[Tensor, SparseMatrix, None]  # noqa: UP007
"""X: dense features, sparse ones, indices of nodes (integers), or None."""
