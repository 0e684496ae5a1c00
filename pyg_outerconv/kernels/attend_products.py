"""The passes of softmax attention of queries and keys on a CPU, one product for all heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .attend_operator import Passes
from .backends.native import Native
from .head_copies import HeadCopies
from .primitive import is_lean, is_plain


def can_attend_products(backend: str, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these passes serve a call of ``attend``: plain tensors on a CPU, not short ones."""
    fits = query.is_cpu and query.dtype in (torch.float32, torch.float64)
    fits = fits and query.numel() > 0 and value.numel() > 0
    return fits and backend == Native.name and is_lean() and is_plain(query, key, value)


def forward(
    entries: HeadCopies, operands: Sequence[Tensor], scale: float, kept: Tensor | None = None
) -> Tensor:
    """The result; ``kept`` gets the shares, (1, E·H)."""
    query, key, value = operands
    score = entries.sampled(query, key)
    score = torch.mul(score, scale, out=score if kept is None else kept[0])
    return entries.times(entries.shares(score), value)


def backward(
    entries: HeadCopies,
    operands: Sequence[Tensor],
    out: Tensor,
    kept: Tensor,
    grad: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in queries, keys and values."""
    (query, key, value), (share,) = operands, kept
    of_value = entries.times(share, grad, transposed=True)
    of_score = entries.sampled(grad, value)
    of_score -= entries.at((grad * out).sum(-1), entries.row)
    of_score.mul_(share).mul_(scale)
    of_key = entries.times(of_score, query, transposed=True)
    return entries.times(of_score, key), of_key, of_value


def _shape(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int, int]:
    return query.size(0), *value.shape[1:]


PRODUCTS = Passes("sums_of_products", ("query", "key", "value"), 1, forward, backward, _shape)
