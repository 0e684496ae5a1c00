"""Dropout of input features, dense or sparse."""

from __future__ import annotations

from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue
from ..graph.sparse_features import SparseFeatures, coalesced, replace_values


@overload
def dropout_features(x: Tensor, p: float = ..., training: bool = ...) -> Tensor: ...
@overload
def dropout_features(x: SparseFeatures, p: float = ..., training: bool = ...) -> SparseFeatures: ...
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
    if isinstance(x, SparseFeatures):
        return x.with_values(_dropout(x.value, p)) if training else x
    if x.layout == torch.strided:
        return F.dropout(x, p, training)
    if not training or p == 0.0:
        return x
    x = coalesced(x)
    return replace_values(x, _dropout(x.values(), p))


def _dropout(value: Tensor, p: float) -> Tensor:
    """Dropout of a vector; on a CPU by uniform numbers, which torch draws four times as fast."""
    if value.device.type != "cpu" or p == 1.0:
        return F.dropout(value, p)
    kept = torch.rand(value.shape) >= p
    return value * (kept.to(value.dtype) / (1.0 - p))
