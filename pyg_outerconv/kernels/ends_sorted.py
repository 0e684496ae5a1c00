"""Graph attention over sorted edges, all heads in one product: passes of :mod:`.attend_ends`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from .head_copies import HeadCopies

Saved = tuple[Tensor, ...]


def pack(value: Tensor, of_scores: Tensor) -> Tensor:
    """Pack Θ (H, P, V) and then the score parameters (H, P, 2): (P, H V + 2 H)."""
    rows = value.size(1)
    columns = value.transpose(0, 1).reshape(rows, -1), of_scores.permute(1, 2, 0).reshape(rows, -1)
    return torch.cat(columns, 1)


def unpack(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack`: (H, P, V) and (H, P, 2)."""
    rows, columns = packed.size(0), packed.size(1) - 2 * heads
    value, of_scores = packed[:, :columns], packed[:, columns:]
    return (
        value.view(rows, heads, -1).transpose(0, 1),
        of_scores.view(rows, 2, heads).permute(2, 0, 1),
    )


def forward(
    entries: HeadCopies, product: Tensor, heads: int, slope: float, has_backward: bool
) -> Saved:
    """The result and the tensors for the backward pass, as in :func:`.ends_listed.forward`.

    Here ``product`` is (N, H V + 2 H), and the saved tensors have the heads first.
    """
    nodes, columns = product.size(0), product.size(1) - 2 * heads
    values = product[:, :columns].view(nodes, heads, -1).transpose(0, 1).contiguous()
    ends = product[:, columns:].t().contiguous()
    score = ends[heads:].index_select(1, entries.row)
    score += ends[:heads].index_select(1, entries.col)
    weight = entries.raised(leaky_relu(score, slope, inplace=not has_backward))
    total = entries.sums(weight).clamp_(min=torch.finfo(weight.dtype).tiny)
    sums = entries.times(weight, values).transpose(0, 1)
    out = sums.new_empty(sums.shape)
    torch.div(sums, total.t().unsqueeze(-1), out=out)
    return out, values, score, weight, total


def backward(entries: HeadCopies, saved: Saved, grad: Tensor, slope: float) -> Tensor:
    """The gradient in ``product``, (N, H V + 2 H), for the gradient in the result (N, H, V)."""
    values, score, weight, total = saved
    heads, nodes, width = values.shape
    of_sums = torch.div(grad.transpose(0, 1), total.unsqueeze(-1), out=torch.empty_like(values))
    of_score = entries.sampled(of_sums, values).mul_(weight)
    mean = entries.sums(of_score).div_(total)
    of_score.addcmul_(weight, mean.index_select(1, entries.row), value=-1.0)
    of_score = torch.ops.aten.leaky_relu_backward(of_score, score, slope, False)
    columns = heads * width
    found = grad.new_empty(nodes, columns + 2 * heads)
    of_values = entries.times_transposed(weight, of_sums).transpose(0, 1)
    found[:, :columns].view(nodes, heads, width).copy_(of_values)
    found[:, columns : columns + heads].copy_(entries.sums_transposed(of_score).t())
    found[:, columns + heads :].copy_(entries.sums(of_score).t())
    return found
