"""Products of sparse features, or of their transpose, with dense matrices."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import spmm
from ...theta import autocast_pair
from ..sparse_features import SparseFeatures, features_of
from ..sparse_patterns import row_of_each, transposed
from .table import getter, rule_for


def _is_dense(x: Any, *dims: int) -> bool:
    """Whether it is a dense matrix or vector of numbers; an ``EdgeIndex`` holds integers."""
    return (
        isinstance(x, Tensor)
        and not isinstance(x, SparseFeatures)
        and x.layout is torch.strided
        and x.is_floating_point()
        and x.dim() in dims
    )


def _times(x: SparseFeatures, other: Tensor, *, transpose: bool = False) -> Tensor:
    """X W, or Xᵀ W; in autocast's dtype where autocast is on."""
    value, other = autocast_pair(x.value, other)
    wide = other.unsqueeze(1) if other.dim() == 1 else other
    out = spmm(x.sparsity, value, wide, transpose=transpose)
    return out.squeeze(1) if other.dim() == 1 else out


@rule_for(F.linear)
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """X Wᵀ + b."""
    if not isinstance(input, SparseFeatures) or not _is_dense(weight, 1, 2):
        return NotImplemented
    out = _times(input, weight.t())
    return out if bias is None else out + bias.to(out.dtype)


@rule_for(torch.mm, torch.matmul, torch.mv, Tensor.mm, Tensor.matmul, Tensor.mv, Tensor.__matmul__)
def matmul(input: Any, other: Any = None, *, out: Any = None, **kwargs: Any) -> Any:
    """X W for W (P, Q) or (P,), or D X for D (L, M) or (M,)."""
    other = kwargs.get("mat2", kwargs.get("vec", other))
    if out is not None:
        return NotImplemented
    if isinstance(input, SparseFeatures) and _is_dense(other, 1, 2):
        return _times(input, other)
    if isinstance(other, SparseFeatures) and _is_dense(input, 1, 2):
        return _times(other, input.t(), transpose=True).t()
    return NotImplemented


@rule_for(Tensor.__rmatmul__)
def rmatmul(x: Any, other: Any) -> Any:
    """D X, as ``x.__rmatmul__(D)``."""
    return matmul(other, x)


@rule_for(torch.addmm, Tensor.addmm)
def addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> Any:
    """beta · B + alpha · X W."""
    product = matmul(mat1, mat2) if out is None else NotImplemented
    if product is NotImplemented or isinstance(input, SparseFeatures):
        return NotImplemented
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else (input if beta == 1 else beta * input) + product


# The transpose -----------------------------------------------------------------------------------


@rule_for(
    torch.t,
    Tensor.t,
    torch.adjoint,
    Tensor.adjoint,
    getter("T"),
    getter("mT"),
    getter("H"),
    getter("mH"),
)
def transpose(x: SparseFeatures) -> SparseFeatures:
    """Xᵀ (P, M), a copy of the values in order of columns."""
    pattern, entry = transposed(x.sparsity)
    value = x.value.index_select(0, entry)
    return features_of(type(x.matrix)(pattern, value), is_copy=True)


@rule_for(torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes, Tensor.swapdims)
def swapped(x: SparseFeatures, dim0: int, dim1: int) -> Any:
    """Xᵀ, or X itself where both dimensions are the same."""
    if not all(-2 <= dim < 2 for dim in (dim0, dim1)):
        return NotImplemented
    return transpose(x) if dim0 % 2 != dim1 % 2 else alias(x)


def alias(x: SparseFeatures) -> SparseFeatures:
    """Another tensor with the same values."""
    return features_of(x.matrix, is_copy=x.is_copy)


@rule_for(torch.permute, Tensor.permute)
def permuted(x: SparseFeatures, *dims: Any) -> Any:
    """X or Xᵀ."""
    order = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = tuple(dim % 2 for dim in order if isinstance(dim, int))
    return (
        {(0, 1): alias, (1, 0): transpose}[order](x) if sorted(order) == [0, 1] else NotImplemented
    )


# Rows added to a dense matrix, as PyG's aggregations do -----------------------------------------


@rule_for(Tensor.index_add_)
def index_add_(out: Any, dim: int, index: Tensor, source: Any, *, alpha: float = 1) -> Any:
    """``out[index[m]] += alpha · x[m]``: each stored value is added to one number."""
    fits = isinstance(source, SparseFeatures) and _is_dense(out, 2) and dim in (0, -2)
    if not fits or index.dim() != 1 or index.numel() != source.size(0):
        return NotImplemented
    return _add_rows(out, index, source, alpha)


@rule_for(torch.index_add, Tensor.index_add)
def index_add(input: Any, dim: int, index: Tensor, source: Any, *, alpha: float = 1) -> Any:
    """The same in memory of its own."""
    if not _is_dense(input, 2):
        return NotImplemented
    return index_add_(input.clone(), dim, index, source, alpha=alpha)


@rule_for(Tensor.scatter_add_)
def scatter_add_(out: Any, dim: int, index: Tensor, src: Any) -> Any:
    """The same, where the index of a row is one number that is expanded over its columns."""
    fits = isinstance(src, SparseFeatures) and _is_dense(out, 2) and dim in (0, -2)
    if not fits or index.shape != src.shape or (index.size(1) > 1 and index.stride(1) != 0):
        return NotImplemented
    return _add_rows(out, index[:, 0], src, 1) if index.numel() else out


def _add_rows(out: Tensor, index: Tensor, x: SparseFeatures, alpha: float) -> Any:
    if out.size(1) != x.size(1) or not out.is_contiguous():
        return NotImplemented
    row = index.long().index_select(0, row_of_each(x.sparsity))
    out.view(-1).index_add_(0, row * out.size(1) + x.sparsity.col, x.value, alpha=alpha)
    return out
