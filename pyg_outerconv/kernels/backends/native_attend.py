"""Fused attention by CSR products, head by head: a few vectors of entries at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from ..tiles import accumulator
from .native_csr import csr, row_sums, sampled, spread, times

# exp of scores up to this bound neither overflows nor underflows in float32, also when summed up,
# so that the highest score of each row need not be found and subtracted.
_SAFE_SCORE = 60.0


def forward(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """See :meth:`Backend.attend`."""
    wide, heads = accumulator(query.dtype), query.size(1)
    out = query.new_empty((query.size(0), heads, value.size(2)))
    logsumexp = query.new_empty((query.size(0), heads), dtype=wide)
    for head in range(heads):
        keys, values = _head(key, head, wide), _head(value, head, wide)
        score = sampled(ptr, index, _head(query, head, wide) * scale, keys)
        if bias is not None:
            score += bias[:, head]
        shift = shift_of_rows(ptr, score)
        if shift is not None:
            score -= spread(ptr, shift, score.numel())
        weight = score.exp_()
        total = row_sums(ptr, weight)
        product = times(csr(ptr, index, weight, key.size(0)), values)
        out[:, head] = product / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
        logsumexp[:, head] = total.log() if shift is None else total.log() + shift
    return out, logsumexp


def backward(
    near: tuple[Tensor, Tensor],
    far: tuple[Tensor, Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :meth:`Backend.attend_backward`; shares are computed again, not kept."""
    (ptr, index), (ptr_t, index_t, perm) = near, far
    wide, heads, entries = accumulator(query.dtype), query.size(1), index.numel()
    grads = tuple(torch.empty_like(t) for t in (query, key, value))
    of_score = query.new_empty((entries if bias is not None else 0, heads))
    for head in range(heads):
        queries, keys = _head(query, head, wide) * scale, _head(key, head, wide)
        values, above = _head(value, head, wide), _head(grad, head, wide)
        share = sampled(ptr, index, queries, keys)
        if bias is not None:
            share += bias[:, head]
        # A row without shares has -inf here, and scores of -inf: their difference is no number.
        total = logsumexp[:, head]
        share -= spread(ptr, total.masked_fill(total == -torch.inf, 0.0), entries)
        share.exp_()
        grads[2][:, head] = times(
            csr(ptr_t, index_t, share.index_select(0, perm), query.size(0)), above
        )
        score = sampled(ptr, index, above, values)
        kept = (above * _head(out, head, wide)).sum(-1)
        score -= spread(ptr, kept, entries)
        score *= share
        if bias is not None:
            of_score[:, head] = score
        grads[0][:, head] = times(csr(ptr, index, score, key.size(0)), keys) * scale
        grads[1][:, head] = times(
            csr(ptr_t, index_t, score.index_select(0, perm), query.size(0)), queries
        )
    return grads[0], grads[1], grads[2], of_score


def _head(x: Tensor, head: int, dtype: torch.dtype) -> Tensor:
    # MKL is three times slower on strided rows than on contiguous ones.
    return x[:, head].to(dtype).contiguous()


def shift_of_rows(ptr: Tensor, score: Tensor) -> Tensor | None:
    """What to subtract in each row so that exp stays in range; None where nothing is needed."""
    if score.numel() == 0:
        return None
    # On CUDA the comparison would wait for the device.
    if not score.is_cuda and float(score.abs().max()) <= _SAFE_SCORE:
        return None
    highest = row_sums(ptr, score, "max")
    return highest.masked_fill(highest == -torch.inf, 0.0)
