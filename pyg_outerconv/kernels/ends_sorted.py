"""Graph attention on sorted edges: one product for all heads, in either direction."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from .head_copies import HeadCopies

Kept = tuple[Tensor, ...]


def pack(value: Tensor, of_scores: Tensor) -> Tensor:
    """(P, H V + 2 H) of Θ (H, P, V) and what scores are made with, (H, P, 2): these at the end."""
    return torch.cat((value.transpose(0, 1).flatten(1), of_scores.permute(1, 2, 0).flatten(1)), 1)


def unpack(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """(H, P, V) and (H, P, 2), which :func:`pack` undoes."""
    value, of_scores = packed.split((packed.size(1) - 2 * heads, 2 * heads), dim=1)
    return (
        value.unflatten(1, (heads, -1)).transpose(0, 1),
        of_scores.unflatten(1, (2, heads)).permute(2, 0, 1),
    )


def forward(entries: HeadCopies, made: Tensor, heads: int, slope: float, keeps: bool) -> Kept:
    """See :func:`.ends_listed.forward`; ``made`` is (N, H V + 2 H), and heads come first inside."""
    values, ends = made.split((made.size(1) - 2 * heads, 2 * heads), dim=1)
    values = values.unflatten(1, (heads, -1)).transpose(0, 1).contiguous()
    near, far = ends.t().contiguous().split(heads)
    score = far.index_select(1, entries.row).add_(near.index_select(1, entries.col))
    weight = entries.raised(leaky_relu(score, slope, inplace=not keeps))
    total = entries.sums(weight).clamp_(min=torch.finfo(weight.dtype).tiny)
    sums = entries.times(weight, values).transpose(0, 1)
    out = sums.new_empty(sums.shape)
    torch.div(sums, total.t().unsqueeze(-1), out=out)
    return out, values, score, weight, total


def pull(entries: HeadCopies, kept: Kept, grad: Tensor, slope: float) -> Tensor:
    """See :func:`.ends_listed.pull`: (N, H V + 2 H)."""
    values, score, weight, total = kept
    heads, nodes, width = values.shape
    of_sums = torch.div(grad.transpose(0, 1), total.unsqueeze(-1), out=torch.empty_like(values))
    of_score = entries.sampled(of_sums, values).mul_(weight)
    mean = entries.sums(of_score).div_(total)
    of_score.addcmul_(weight, mean.index_select(1, entries.row), value=-1.0)
    of_score = torch.ops.aten.leaky_relu_backward(of_score, score, slope, False)
    found = grad.new_empty(nodes, heads * (width + 2))
    of_values, of_ends = found.split((heads * width, 2 * heads), dim=1)
    of_sent = entries.times_turned(weight, of_sums).transpose(0, 1)
    of_values.unflatten(1, (heads, width)).copy_(of_sent)
    of_ends[:, :heads] = entries.sums_turned(of_score).t()
    of_ends[:, heads:] = entries.sums(of_score).t()
    return found
