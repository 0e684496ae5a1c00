"""Pooling of sets by learned queries."""

from __future__ import annotations

from typing import Any

from ...attention import LearnedQueries
from ...equations import row
from ..attention_conv import AttentionConv
from .multi_head import multi_head_attention


@row("Ready-made layers", "1810.00825", "")
def set_pooling(
    in_channels: int,
    out_channels: int,
    heads: int = 1,
    num_queries: int = 1,
    dropout: float = 0.0,
    **options: Any,
) -> AttentionConv:
    """Y = Σ_h A_hᵀ (X V_h + b_h) O_h + b, where learned vectors ask all nodes of a set.

    Multi-head attention of seed vectors, as in the `"Set Transformer"
    <https://arxiv.org/abs/1810.00825>`_ paper (section 3.2), without skip and feed-forward part.
    Nodes in another order give the same outputs. Each graph of a batch vector is a set of its own,
    and its outputs follow each other.

    >>> import torch
    >>> pool, x = set_pooling(16, 32, heads=4, num_queries=2), torch.randn(7, 16)
    >>> pool(x).shape
    torch.Size([2, 32])
    >>> pool(x, batch=torch.tensor([0, 0, 0, 1, 1, 1, 1])).shape
    torch.Size([4, 32])

    Args:
        in_channels: P.
        out_channels: Q, which heads divide; queries have as many.
        heads: H.
        num_queries: how many outputs each set has.
        dropout: the share of attention that is dropped in training.
        **options: of :func:`multi_head_attention`.
    """
    queries = LearnedQueries(num_queries, out_channels)
    options = {"align": queries, "kdim": in_channels, **options}
    return multi_head_attention(out_channels, heads, dropout, **options)
