"""Dropout of input features, dense or sparse."""

from __future__ import annotations

from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue, refusal
from ..graph.sparse_features import SparseFeatures, coalesced, replace_values


@overload
def dropout_features(x: Tensor, p: float = ..., training: bool = ...) -> Tensor: ...
@overload
def dropout_features(x: SparseFeatures, p: float = ..., training: bool = ...) -> SparseFeatures: ...
def dropout_features(
    x: Tensor | SparseFeatures, p: float = 0.5, training: bool = True
) -> Tensor | SparseFeatures:
    """Zero each entry of X with probability ``p`` and scale the others by ``1 / (1 − p)``.

    ``torch.nn.functional.dropout`` for features that may be sparse, which it does not take when
    training. Of sparse features only the entries are drawn, since zeros stay zeros: the law is
    that of dropout on the dense matrix, while equal seeds draw other numbers. The places stay, so
    that nothing is sorted again for the result.

    Args:
        x: dense features of any shape, or (M, P) as ``torch.sparse`` CSR, COO or CSC, or prepared.
        p: the probability.
        training: otherwise x is returned as it is.

    Returns:
        what x was: dense, of the same sparse layout (COO coalesced), or prepared.

    Raises:
        ValueError: ``p`` is no probability, or see :meth:`SparseFeatures.of`.
        TypeError: sparse features are not floating point, or of a block layout.
    """
    if not 0.0 <= p <= 1.0:
        raise RefusedValue(refusal("dropout takes a probability", "[0, 1]", p))
    if isinstance(x, SparseFeatures):
        return x.with_values(_dropout(x.value, p)) if training else x
    if x.layout == torch.strided:
        return F.dropout(x, p, training)
    if not training or p == 0.0:
        return x
    x = coalesced(x)
    return replace_values(x, _dropout(x.values(), p))


def _dropout(value: Tensor, p: float) -> Tensor:
    """Dropout of a vector; on a CPU, where torch draws uniform numbers four times as fast as it
    draws from Bernoulli's law, by those.
    """
    if value.device.type != "cpu" or p == 1.0:
        return F.dropout(value, p)
    kept = torch.rand(value.shape) >= p
    return value * (kept.to(value.dtype) / (1.0 - p))
