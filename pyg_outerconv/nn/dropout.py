"""Dropout of input features, dense or sparse."""

from __future__ import annotations

from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.sparse_features import SparseFeatures, as_matrix
from ..graph.sparse_matrix import coalesced, replace_values
from ..graph.sparse_rules import dropped
from ..signatures import typed


@overload
def dropout_features(x: SparseFeatures, p: float = ..., training: bool = ...) -> SparseFeatures: ...
@overload
def dropout_features(x: Tensor, p: float = ..., training: bool = ...) -> Tensor: ...
@typed
def dropout_features(
    x: Tensor | SparseFeatures, p: float = 0.5, training: bool = True
) -> Tensor | SparseFeatures:
    """Zero each entry of X with probability ``p`` and scale the others by ``1 / (1 − p)``.

    ``torch.nn.functional.dropout`` for dense or sparse features. For sparse features only stored
    entries are drawn, because zeros stay zero: the distribution is that of dropout on the dense
    matrix, but equal seeds give other masks. The sparsity pattern stays, so nothing is sorted.

    Args:
        x: dense features of any shape, or (M, P) as ``torch.sparse`` CSR, COO or CSC, or prepared.
        p: the probability.
        training: whether dropout is active; if not, x is returned.

    Returns:
        features in the layout of x: dense, sparse (COO coalesced), or :class:`SparseFeatures`.

    Raises:
        ValueError: ``p`` is not in [0, 1], or as :meth:`SparseFeatures.of`.
        TypeError: sparse features are not floating point, or have a block layout.
    """
    if not 0.0 <= p <= 1.0:
        raise RefusedValue("dropout takes a probability", "[0, 1]", p)
    if training and p and not x.dtype.is_floating_point:
        raise RefusedType("entries that are dropped are numbers", "floating point", x.dtype)
    if isinstance(x, SparseFeatures):
        if training and torch.compiler.is_compiling() and x.value.requires_grad:
            matrix: Any = as_matrix(x)  # a layer takes the entries alone, and gradients pass them
            return matrix.with_values(dropped(matrix.value, p))  # type: ignore[no-any-return]
        return F.dropout(x, p, training)  # type: ignore[return-value]
    if x.layout == torch.strided:
        return F.dropout(x, p, training)
    if not training or p == 0.0:
        return x
    x = coalesced(x)
    return replace_values(x, dropped(x.values(), p))
