"""Graph attention over few edges in any order: the passes of :mod:`.attend_ends`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from .listed import Listed

MOST = 2**18
"""Up to so many edges times channels, messages are held; they fit into a cache."""

Saved = tuple[Tensor, ...]


def pack(value: Tensor, of_scores: Tensor) -> Tensor:
    """Pack Θ (H, P, V) and the score parameters (H, P, 2), head by head: (P, H (V + 2))."""
    return torch.cat((value, of_scores), dim=2).transpose(0, 1).flatten(1)


def unpack(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack`: (H, P, V) and (H, P, 2)."""
    parts = packed.view(packed.size(0), heads, -1).transpose(0, 1)
    return parts[..., :-2], parts[..., -2:]


def forward(
    entries: Listed, product: Tensor, heads: int, slope: float, has_backward: bool
) -> Saved:
    """The result of :func:`.attend_ends.attend_ends`, and tensors for the backward pass.

    Args:
        entries: the edges.
        product: (N, H (V + 2)), the product of x and the packed parameters.
        heads: H.
        slope: the slope of the leaky ReLU below zero.
        has_backward: whether there will be a backward pass.
    """
    row, col, (count, _) = entries
    product = product.view(product.size(0), heads, -1)
    sent = product.index_select(0, col)
    score = sent[..., -2] + product.index_select(0, row)[..., -1]
    share = entries.raised(leaky_relu(score, slope, inplace=not has_backward))
    total = share.new_zeros((count, heads)).index_add_(0, row, share)
    share /= total.index_select(0, row)
    values = sent[..., :-2]
    out = values.new_zeros((count, heads, values.size(2)))
    return out.index_add_(0, row, values * share.unsqueeze(-1)), sent, score, share


def backward(entries: Listed, saved: Saved, grad: Tensor, slope: float) -> Tensor:
    """The gradient in ``product``, (N, H (V + 2)), for the gradient in the result (N, H, V)."""
    row, col, (count, _) = entries
    sent, score, share = saved
    above = grad.index_select(0, row)
    of_share = (sent[..., :-2] * above).sum(-1).mul_(share)
    mean = share.new_zeros((count, share.size(1))).index_add_(0, row, of_share)
    of_score = of_share.addcmul_(share, mean.index_select(0, row), value=-1.0)
    of_score = torch.ops.aten.leaky_relu_backward(of_score, score, slope, False)
    found = torch.zeros_like(sent)
    torch.mul(above, share.unsqueeze(-1), out=found[..., :-2])
    found[..., -2] = of_score
    found = sent.new_zeros((count, *sent.shape[1:])).index_add_(0, col, found)
    found[..., -1] = mean.zero_().index_add_(0, row, of_score)
    return found.view(count, -1)
