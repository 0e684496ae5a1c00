"""Copies of sparse features: on other devices, in other types and layouts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..sparse_features import SparseFeatures, dense_of, features_of
from ..sparse_matrix import SparseMatrix
from ..sparse_patterns import canonical, row_of_each
from .products import alias
from .table import getter, rule_for

_MOVES = [
    "to",
    "cpu",
    "cuda",
    "float",
    "double",
    "half",
    "bfloat16",
    "type",
    "type_as",
    "pin_memory",
]


def _placed(x: SparseFeatures, value: Tensor) -> Any:
    """The features with these values, whose pattern goes where they are."""
    if not value.is_floating_point():
        return NotImplemented
    if value is x.value:
        return x
    pattern = x.sparsity
    if value.device != pattern.col.device:
        pattern = pattern.to(value.device)
    return features_of(SparseMatrix(pattern, value))


def _register() -> None:
    for name in _MOVES:
        function = getattr(Tensor, name)

        def move(x: Any, *args: Any, function: Any = function, **kwargs: Any) -> Any:
            if not isinstance(x, SparseFeatures):  # dense.to(sparse), dense.type_as(sparse)
                args = tuple([a.value if isinstance(a, SparseFeatures) else a for a in args])
                return function(x, *args, **kwargs)
            if function is Tensor.type and not args and not kwargs:
                return x.value.type()
            kwargs.pop("memory_format", None)  # values are a vector
            args = tuple([a.value if isinstance(a, SparseFeatures) else a for a in args])
            return _placed(x, function(x.value, *args, **kwargs))

        rule_for(function)(move)


_register()


@rule_for(torch.clone, Tensor.clone)
def clone(input: SparseFeatures, **kwargs: Any) -> SparseFeatures:
    """The same pattern, with a copy of the values."""
    return features_of(input.matrix.with_values(input.value.clone()))


@rule_for(torch.detach, Tensor.detach)
def detach(input: SparseFeatures) -> SparseFeatures:
    """The same values without their graph."""
    return features_of(input.matrix.with_values(input.value.detach()), is_copy=input.is_copy)


@rule_for(getter("data"))
def data(x: SparseFeatures) -> SparseFeatures:
    """The same values, unknown to autograd."""
    return features_of(x.matrix.with_values(x.value.data), is_copy=x.is_copy)


@rule_for(Tensor.contiguous, torch.positive, Tensor.positive)
def contiguous(x: SparseFeatures, **kwargs: Any) -> SparseFeatures:
    """The features themselves."""
    return x


@rule_for(torch.Tensor.view_as)
def viewed(x: SparseFeatures, other: Any) -> Any:
    """Another tensor with the same values."""
    return alias(x) if tuple(x.shape) == tuple(other.shape) else NotImplemented


@rule_for(Tensor.share_memory_)
def share_memory_(x: SparseFeatures) -> SparseFeatures:
    """Values and pattern in memory that processes share."""
    for part in (x.value, x.rowptr, x.col):
        part.share_memory_()
    return x


@rule_for(Tensor.is_shared)
def is_shared(x: SparseFeatures) -> bool:
    """Whether the values are in memory that processes share."""
    return x.value.is_shared()


@rule_for(Tensor.is_pinned)
def is_pinned(x: SparseFeatures, *args: Any) -> bool:
    """Whether the values are in pinned memory."""
    return x.value.is_pinned()


# Other layouts -----------------------------------------------------------------------------------


@rule_for(Tensor.to_dense)
def to_dense(x: SparseFeatures, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """X (M, P), dense, without a warning; gradients flow to the stored entries."""
    out = dense_of(x)
    return out if dtype is None else out.to(dtype)


@rule_for(Tensor.to_sparse_csr)
def to_sparse_csr(x: SparseFeatures, dense_dim: Any = None) -> Any:
    """A ``torch.sparse`` matrix with copies of the same entries."""
    if dense_dim is not None:
        return NotImplemented
    found = canonical(x.matrix)
    ptr, column = found.sparsity.rowptr.long(), found.sparsity.col.long()
    return torch.sparse_csr_tensor(
        ptr, column, found.value.clone(), tuple(x.shape), check_invariants=False
    )


@rule_for(Tensor.to_sparse, Tensor.to_sparse_coo)
def to_sparse(x: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """The same in coordinates, or in another layout."""
    if not args and not kwargs:
        found = canonical(x.matrix)
        place = torch.stack([row_of_each(found.sparsity).long(), found.sparsity.col.long()])
        return torch.sparse_coo_tensor(
            place, found.value.clone(), tuple(x.shape), is_coalesced=True, check_invariants=False
        )
    layout = kwargs.get("layout", torch.sparse_csr if args == (torch.sparse_csr,) else None)
    return to_sparse_csr(x) if layout is torch.sparse_csr else NotImplemented


@rule_for(Tensor.to_sparse_csc)
def to_sparse_csc(x: SparseFeatures, dense_dim: Any = None) -> Any:
    """The same, by columns."""
    found = to_sparse_csr(x, dense_dim)
    return found if found is NotImplemented else found.to_sparse_csc()
