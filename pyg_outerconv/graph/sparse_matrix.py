"""Sparse X in the core: a pattern and values, its rows and columns, and its products with Θ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Union

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..errors import RefusedType, RefusedValue
from ..kernels import spmm
from ..kernels.csr import CSR
from ..kernels.edge_lists import pointers, spread
from ..kernels.index_checks import check_indices, has_numbers
from ..memo import Memo
from ..signatures import check_type
from ..theta import autocast_pair
from .edge_index import check_compressed

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
        csr: the pattern; entries of a row are sorted by column.
        value: (E,) floating point, in row order; may require gradients.

    Raises:
        ValueError: there is not one value for each entry, or they are on another device.
        TypeError: ``value`` is not floating point.
    """

    csr: CSR
    value: Tensor

    def __post_init__(self) -> None:
        value = self.value
        if not (isinstance(self.csr, CSR) and isinstance(value, Tensor)):
            check_type("sparse features", "csr", self.csr, CSR)
            check_type("sparse features", "value", value, Tensor)
        entries = self.csr.index
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
        return SparseMatrix(self.csr, value)

    def to(self, target: torch.device | str | torch.dtype) -> SparseMatrix:
        """The same features on another device or in another dtype."""
        value = self.value.to(target)
        return SparseMatrix(self.csr.to(value.device), value)

    # The interface of a dense X -------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """(M, P)."""
        return torch.Size(self.csr.shape)

    @property
    def num_entries(self) -> int:
        """Number of entries E, stored zeros included."""
        return self.csr.num_entries

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
        return self.csr.shape[dim]

    def is_floating_point(self) -> bool:
        """True: these are features, not indices of nodes."""
        return True

    # Rows, columns and places ---------------------------------------------------------------------

    def row_of_each(self) -> Tensor:
        """(E,) the row of each entry, in row order."""
        ptr = self.csr.ptr
        rows = torch.arange(ptr.numel() - 1, dtype=ptr.dtype, device=ptr.device)
        return spread(rows, ptr, self.num_entries)

    def place_of_each(self) -> Tensor:
        """(E,) the place m · P + p of each entry in the dense matrix stored row by row, int64."""
        return self.row_of_each().long() * self.size(1) + self.csr.index

    def dense(self) -> Tensor:
        """X (M, P), dense, in memory of its own."""
        flat = self.value.new_zeros(self.size(0) * self.size(1))
        return flat.index_add(0, self.place_of_each(), self.value).view(self.shape)

    def merged(self) -> SparseMatrix:
        """The matrix with sorted columns and without repeats, whose values are added up."""
        if not has_numbers(self.csr.index):
            return self
        places = self.place_of_each()
        if bool((places.diff() > 0).all()):
            return self
        place, index = torch.unique(places, return_inverse=True)
        value = self.value.new_zeros(place.numel()).index_add(0, index, self.value)
        return SparseMatrix(pattern_of(place, self.csr.shape), value)

    def t(self) -> SparseMatrix:
        """Xᵀ (P, M). Nothing is sorted a second time."""
        (ptr, index, order), back = self.csr.columns, torch.empty_like(self.csr.index)
        back[order.long()] = torch.arange(back.numel(), dtype=back.dtype, device=back.device)
        columns = self.csr.ptr, self.csr.index, back
        csr = CSR.of(ptr, index, self.size(0), columns)
        return SparseMatrix(csr, self.value.index_select(0, order))

    def part(self, start: int, stop: int) -> SparseMatrix:
        """The rows from ``start`` to ``stop``, whose values are a view."""
        ptr = self.csr.ptr[start : stop + 1]
        entries = slice(int(ptr[0]), int(ptr[-1]))
        pattern = CSR.of(ptr - ptr[0], self.csr.index[entries], self.size(1))
        return SparseMatrix(pattern, self.value[entries])

    def rows(self, index: Tensor) -> SparseMatrix:
        """The rows ``index`` (in range, in any order, with repeats)."""
        start = self.csr.ptr.index_select(0, index).long()
        count = self.csr.ptr.diff().index_select(0, index).long()
        ptr = torch.zeros(index.numel() + 1, dtype=torch.int64, device=index.device)
        torch.cumsum(count, 0, out=ptr[1:])
        total = int(ptr[-1])
        entry = torch.arange(total, device=index.device)
        entry += torch.repeat_interleave(start - ptr[:-1], count, output_size=total)
        dtype = index_dtype(index.numel(), self.size(1), total)
        column = self.csr.index.index_select(0, entry).to(dtype)
        pattern = CSR.of(ptr.to(dtype), column, self.size(1))
        return SparseMatrix(pattern, self.value.index_select(0, entry))

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

    def _by_group(self, groups: int) -> CSR:
        """The (M·G) × P pattern whose row m·G + g has the entries of row m in column block g.

        Entries of a row are sorted by column, so the order of values does not change.
        """
        if groups == 1:
            return self.csr
        num_rows, num_columns = self.shape
        colptr, row_of_column_order, order = self.csr.columns
        dtype = index_dtype(num_rows * groups, num_columns, self.num_entries)
        width = max(1, num_columns // groups)
        column = torch.arange(num_columns, device=self.device, dtype=dtype)
        column = column.repeat_interleave(colptr.diff(), output_size=self.num_entries)
        row = row_of_column_order.to(dtype) * groups + column // width
        pointer = torch.zeros(num_rows * groups + 1, dtype=dtype, device=self.device)
        torch.cumsum(torch.bincount(row, minlength=num_rows * groups), 0, out=pointer[1:])
        columns = colptr.to(dtype), row, order.to(dtype)
        return CSR.of(pointer, self.csr.index.to(dtype), num_columns, columns)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"SparseMatrix({rows} x {columns}, entries={self.num_entries}, {self.dtype}, "
            f"device={str(self.device)!r})"
        )


# A Union, because PyG parses the annotations of a layer and does not know ``|``.
Features = Union[Tensor, SparseMatrix, None]  # noqa: UP007
"""X: dense features, sparse ones, indices of nodes (integers), or None."""


def stacked(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """The matrices below each other; they have as many columns."""
    total, rows = sum(one.num_entries for one in parts), sum(one.size(0) for one in parts)
    dtype = index_dtype(total, rows, parts[0].size(1))
    pieces, before = [torch.zeros(1, dtype=dtype, device=parts[0].device)], 0
    for one in parts:
        pieces.append(one.csr.ptr[1:].to(dtype) + before)
        before += one.num_entries
    column = torch.cat([one.csr.index.to(dtype) for one in parts])
    pattern = CSR.of(torch.cat(pieces), column, parts[0].size(1))
    return SparseMatrix(pattern, torch.cat([one.value for one in parts]))


def pattern_of(place: Tensor, shape: tuple[int, int]) -> CSR:
    """The pattern (R × C) of ascending places r · C + c without repeats, int64."""
    rows, columns = shape
    dtype = index_dtype(rows, columns, place.numel())
    width = max(1, columns)
    ptr = pointers((place // width).to(dtype), rows)
    return CSR.of(ptr, (place % width).to(dtype), columns)


# Matrices of torch.sparse ------------------------------------------------------------------------

_prepared_matrices = Memo()
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Prepared(NamedTuple):
    """The pattern of a torch.sparse tensor.

    ``order`` (E,) is the place in the tensor of each entry in row order, None for the identity;
    ``regular``: whether the tensor's own indices are sorted without repeats.
    """

    csr: CSR
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
    if x.layout != torch.sparse_coo:  # torch reads memory at its pointers
        check_compressed(x)
    row, column = x.detach().to_sparse_coo()._indices()
    if x.layout == torch.sparse_coo:
        check_indices("the rows of sparse features", row, num_rows)
        check_indices("the columns of sparse features", column, num_columns)
    key, order = row * num_columns + column, None
    own = column * num_rows + row if x.layout == torch.sparse_csc else key
    regular = bool((own.diff() > 0).all())
    if bool((key.diff() < 0).any()):
        order = torch.sort(key, stable=True).indices
        row, column = row[order], column[order]
    dtype = index_dtype(num_rows, num_columns, row.numel())
    ptr = pointers(row.to(dtype), num_rows)
    return Prepared(CSR.of(ptr, column.to(dtype), num_columns), order, regular)


def read_sparse(x: Tensor) -> SparseMatrix:
    """The entries of a ``torch.sparse`` tensor, see :meth:`SparseFeatures.of`."""
    if torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x):
        return _read(x)
    # torch.func cannot wrap the pointers and indices of compressed matrices.
    with torch._C._DisableFuncTorch():
        return _read(x)


def _read(x: Tensor) -> SparseMatrix:
    anchor, x = x, coalesced(x)
    prepared: Prepared = _prepared_matrices.get("pattern", lambda: prepare(x), anchor)
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
    return SparseMatrix(prepared.csr, value)


def coalesced(x: Tensor) -> Tensor:
    """A ``torch.sparse`` tensor, coalesced if it is a COO matrix.

    The result is cached per tensor object, unless the tensor requires gradients.
    """
    check_sparse(x)
    if x.layout != torch.sparse_coo or x.is_coalesced():
        return x
    if x.requires_grad:
        return x.coalesce()
    out: Tensor = _prepared_matrices.get("coalesced", x.coalesce, x)
    return out


def replace_values(x: Tensor, value: Tensor) -> Tensor:
    """A ``torch.sparse`` tensor with the pattern of ``x``, coalesced, and other values.

    ``value`` (E,) is in the order of ``x.values()``, and gradients flow to it. The layout stays,
    and the prepared pattern is shared.
    """
    places: tuple[Tensor, ...]
    make: Any = partial(torch.sparse_compressed_tensor, layout=x.layout)
    if x.layout == torch.sparse_coo:
        make, places = partial(torch.sparse_coo_tensor, is_coalesced=True), (x.indices(),)
    elif x.layout == torch.sparse_csr:
        places = x.crow_indices(), x.col_indices()
    else:
        places = x.ccol_indices(), x.row_indices()
    out: Tensor = make(*places, value, x.shape, check_invariants=False)
    prepared = _prepared_matrices.get("pattern", lambda: prepare(x), x)
    _prepared_matrices.get("pattern", lambda: prepared, out)
    return out
