"""Products of features with a matrix for each head."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, refusal
from ..graph.sparse_features import Features, SparseFeatures
from ..theta import ValueOutput


def values_of(theta: ValueOutput, x: Features) -> Tensor:
    """X V_h + b_h: (M, *batch, H, V)."""
    found = project(x, theta.value)
    return found if theta.bias is None else found + theta.bias.to(found.dtype)


def project(x: Features, weight: Tensor) -> Tensor:
    """X W_h for every head: features (M, *batch, P), W (H, P, D): (M, *batch, H, D).

    Sparse features take one sparse product. Indices (M,) pick rows of W; None takes all rows.
    """
    heads, rows, width = weight.shape
    if isinstance(x, SparseFeatures):
        return x.transform(weight.unsqueeze(1))
    if x is not None:
        check_type(x, weight)
    wide = weight.transpose(0, 1)
    if x is None:
        return wide
    if not x.is_floating_point():
        return wide.index_select(0, x)
    return (x @ wide.reshape(rows, heads * width)).unflatten(-1, (heads, width))


def check_type(x: Tensor, weight: Tensor) -> None:
    """Raise TypeError if the dtypes of features and parameters differ and autocast is off."""
    if not x.is_floating_point() or x.dtype == weight.dtype:
        return
    if not torch.is_autocast_enabled(x.device.type):
        raise RefusedType(refusal("x must have the dtype of theta", weight.dtype, x.dtype))
