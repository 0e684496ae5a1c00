"""Graph attention on few edges in any order: their scores have a number of each end."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from .listed import Listed

Kept = tuple[Tensor, ...]


def pack(value: Tensor, of_scores: Tensor) -> Tensor:
    """(P, H (V + 2)) of Θ (H, P, V) and what scores are made with, (H, P, 2): head by head."""
    return torch.cat((value, of_scores), dim=2).transpose(0, 1).flatten(1)


def unpack(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """(H, P, V) and (H, P, 2), which :func:`pack` undoes."""
    parts = packed.view(packed.size(0), heads, -1).transpose(0, 1)
    return parts[..., :-2], parts[..., -2:]


def forward(entries: Listed, made: Tensor, heads: int, slope: float, keeps: bool) -> Kept:
    """See :func:`.attend_ends.attend_ends`: the result, and what the backward pass reads.

    Args:
        entries: the edges.
        made: (N, H (V + 2)) what packed parameters make of x; its memory becomes that of values
            with ones in the last two columns, so that sums of values sum weights too.
        heads: H.
        slope: of the leaky ReLU.
        keeps: whether there is a backward pass.
    """
    values = made.view(made.size(0), heads, -1)
    near, far = values[..., -2], values[..., -1]
    score = far.index_select(0, entries.row).add_(near.index_select(0, entries.col))
    weight = entries.raised(leaky_relu(score, slope, inplace=not keeps))
    values[..., -2:] = 1.0
    sent = values.index_select(0, entries.col).mul_(weight.unsqueeze(-1))
    sums = torch.zeros_like(values).index_add_(0, entries.row, sent)
    total = sums[..., -1:].clamp_(min=torch.finfo(sums.dtype).tiny)
    return sums[..., :-2] / total, values, score, weight, sums


def pull(entries: Listed, kept: Kept, grad: Tensor, slope: float) -> Tensor:
    """(N, H (V + 2)) the gradient of what was made of x, for that of the result (N, H, V)."""
    values, score, weight, sums = kept
    total = sums[..., -1:]
    of_sums = torch.empty_like(sums)
    columns = torch.div(grad, total, out=of_sums[..., :-2])
    mean = (columns * sums[..., :-2]).sum(-1, keepdim=True)
    of_sums[..., -2:] = mean.div_(total).mul_(-0.5)  # halves of what there is for the total
    sent = of_sums.index_select(0, entries.row)
    of_score = (sent * values.index_select(0, entries.col)).sum(-1).mul_(weight)
    of_score = torch.ops.aten.leaky_relu_backward(of_score, score, slope, False)
    sent *= weight.unsqueeze(-1)
    sent[..., -2] = of_score
    found = torch.zeros_like(values).index_add_(0, entries.col, sent)
    rows = of_score.new_zeros(values.shape[:2])
    found[..., -1] = rows.index_add_(0, entries.row, of_score)
    return found.flatten(1)
