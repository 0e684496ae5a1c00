"""Sparse products with features of any number of dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..kernels import Sparsity, spmm

if TYPE_CHECKING:
    from .edges import EdgeBasis


def multiply(
    sparsity: Sparsity,
    edges: EdgeBasis,
    x: Tensor,
    order: Tensor | None = None,
    reduce: str = "sum",
) -> Tensor:
    """The product of a sparse (R, C) matrix and a dense x (C, ...): (R, ...).

    ``order`` (E,) permutes the values of the edges into the order of the matrix's entries.
    """
    value = edges.value
    if value is not None:
        value = value.to(x.dtype) if order is None else value.to(x.dtype).index_select(0, order)
    if x.dim() == 2:
        return spmm(sparsity, value, x, reduce=reduce)
    out = spmm(sparsity, value, x.flatten(1), reduce=reduce)
    return out.view(out.size(0), *x.shape[1:])
