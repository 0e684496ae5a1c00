"""Sums, extremes and comparisons over stored entries, with the zeros between them counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels import spmm
from ...kernels.primitive import is_plain
from ..sparse_features import SparseFeatures
from ..sparse_patterns import canonical, row_of_each, united
from .table import rule_for


def _dims(dim: Any) -> tuple[int, ...] | None:
    """The dimensions of a reduction from 0, in order; None for others."""
    if dim is None or dim in ((), []):
        return 0, 1
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    if not all(isinstance(d, int) and -2 <= d < 2 for d in given):
        return None
    found = tuple(sorted({d % 2 for d in given}))
    return found if len(found) == len(given) else None


@rule_for(torch.sum, Tensor.sum)
def total(
    input: SparseFeatures,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """Sums of all entries, of rows or of columns."""
    dims = _dims(kwargs.get("axis", dim))
    if dims is None or out is not None or (dtype is not None and not dtype.is_floating_point):
        return NotImplemented
    value = input.value if dtype is None else input.value.to(dtype)
    if dims == (0, 1):
        found = value.sum()
        return found.reshape(1, 1) if keepdim else found
    over_rows = dims == (0,)
    ones = value.new_ones(input.sparsity.shape[0 if over_rows else 1], 1)
    found = spmm(input.sparsity, value, ones, transpose=over_rows)
    found = found.t() if over_rows else found
    return found if keepdim else found.squeeze(dims[0])


@rule_for(torch.mean, Tensor.mean)
def mean(input: SparseFeatures, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """Sums divided by how many numbers they are of."""
    found = total(input, dim, keepdim, **kwargs)
    if found is NotImplemented:
        return NotImplemented
    dims = _dims(kwargs.get("axis", dim)) or ()
    count = 1
    for one in dims:
        count *= input.sparsity.shape[one]
    return found / count


@rule_for(torch.min, Tensor.min, torch.amin, Tensor.amin)
def least(input: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """The least number of all, zeros included."""
    return NotImplemented if args or kwargs else _extreme(input, torch.minimum, Tensor.min)


@rule_for(torch.max, Tensor.max, torch.amax, Tensor.amax)
def largest(input: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """The largest number of all, zeros included."""
    return NotImplemented if args or kwargs else _extreme(input, torch.maximum, Tensor.max)


def _extreme(x: SparseFeatures, compare: Any, of_values: Any) -> Any:
    matrix = canonical(x.matrix)
    rows, columns = matrix.sparsity.shape
    count = rows * columns
    if not count:
        return NotImplemented  # torch says that there is none
    if not matrix.num_entries:
        return matrix.value.sum()
    found = of_values(matrix.value)
    return found if matrix.num_entries == count else compare(found, torch.zeros_like(found))


@rule_for(torch.count_nonzero, Tensor.count_nonzero)
def count_nonzero(input: SparseFeatures, dim: Any = None) -> Any:
    """How many numbers are not zero, of all, of rows or of columns."""
    dims, matrix = _dims(dim), canonical(input.matrix)
    there = matrix.value != 0
    if dims is None or dims == (0, 1):
        return NotImplemented if dims is None else there.sum()
    index = matrix.sparsity.col if dims == (0,) else row_of_each(matrix.sparsity)
    shape = matrix.sparsity.shape[1 if dims == (0,) else 0]
    return torch.zeros(shape, dtype=torch.int64, device=there.device).index_add(
        0, index, there.long()
    )


@rule_for(torch.nonzero, Tensor.nonzero)
def nonzero(input: SparseFeatures, *, as_tuple: bool = False, out: Any = None) -> Any:
    """(n, 2) the rows and columns of what is not zero."""
    matrix = canonical(input.matrix)
    if out is not None or not is_plain(matrix.value):
        return NotImplemented
    there = matrix.value.detach() != 0
    row, column = row_of_each(matrix.sparsity)[there].long(), matrix.sparsity.col[there].long()
    return (row, column) if as_tuple else torch.stack([row, column], 1)


# Comparisons -------------------------------------------------------------------------------------


def _sides(x: Any, other: Any) -> tuple[Tensor, Tensor] | None:
    """The numbers of both at the places where either has an entry; elsewhere both are zero."""
    sides = []
    for one in (x, other):
        if isinstance(one, SparseFeatures):
            sides.append(one)
        elif type(one) is Tensor and one.layout is torch.strided and one.dim() == 2:
            if not one.is_floating_point() or not is_plain(one) or one.is_meta:
                return None
            sides.append(SparseFeatures.of(one))
        else:
            return None
    first, second = (canonical(side.matrix) for side in sides)
    if first.shape != second.shape or first.device != second.device:
        return None
    _, value, theirs = united(first, second)
    return value, theirs


@rule_for(torch.equal, Tensor.equal)
def equal(input: Any, other: Any) -> Any:
    """Whether all numbers are equal, stored or not."""
    if tuple(input.shape) != tuple(other.shape) or input.dtype != other.dtype:
        return False if input.dtype == other.dtype else NotImplemented
    sides = _sides(input, other)
    return NotImplemented if sides is None else bool((sides[0] == sides[1]).all())


@rule_for(torch.allclose, Tensor.allclose)
def allclose(
    input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """Whether all numbers are close; those that neither stores are zero in both."""
    sides = _sides(input, other)
    if sides is None:
        return NotImplemented
    return torch.allclose(*sides, rtol=rtol, atol=atol, equal_nan=equal_nan)
