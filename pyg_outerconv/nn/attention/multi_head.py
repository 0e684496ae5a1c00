"""Multi-head attention of sequences and sets: torch's layer, over any support."""

from __future__ import annotations

from typing import Any

from ...attention import KeyQuery, Normaliser, Score
from ...equations import row
from ...errors import RefusedValue, refusal
from ...families import Family
from ...graph.checks import check_positive
from ..attention_conv import AttentionConv
from .initial import as_glorot, as_packed, as_packed_values, as_separate_values


@row("Ready-made layers", "1706.03762, section 3.2.2", "`torch.nn.MultiheadAttention`")
def multi_head_attention(
    embed_dim: int,
    num_heads: int,
    dropout: float = 0.0,
    bias: bool = True,
    kdim: int | None = None,
    *,
    support: Family | str = "complete",
    score: Score | None = None,
    **options: Any,
) -> AttentionConv:
    """Y = Σ_h A_hᵀ (X V_h + b_h) O_h + b with A_h = softmax(⟨Q_n W_q + b_q, X_m W_k + b_k⟩ / √D).

    ``torch.nn.MultiheadAttention``, of the `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_ paper, section 3.2.2: nodes are places in a sequence, and
    batches come first, (*, M, P). Masks are supports (``'causal'``, a window, edges of a graph),
    and key padding is ``source_mask``, the places that there are. Self-attention takes one x, and
    cross-attention a pair: keys and values of the first, queries of the second. A place that may
    see nothing gets the output bias, where torch gives NaN.

    >>> import torch
    >>> layer = multi_head_attention(16, 4, support="causal")
    >>> layer(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    >>> layer((torch.randn(2, 7, 16), torch.randn(2, 10, 16))).shape
    torch.Size([2, 10, 16])

    Args:
        embed_dim: channels of queries and outputs; each head has ``embed_dim / num_heads``.
        num_heads: H.
        dropout: the share of attention that is dropped in training, unless a ``normalise`` module
            says it.
        bias: whether the four projections have one.
        kdim: channels of sources, ``embed_dim`` if None; torch's ``kdim`` and ``vdim`` in one.
        support: which sources each target sees.
        score: keys and queries in the place of own ones, such as those of another layer.
        **options: of :class:`AttentionConv`.

    Raises:
        ValueError: heads do not divide the channels.
    """
    check_positive("multi-head attention", embed_dim=embed_dim, num_heads=num_heads)
    if embed_dim % num_heads:
        raise RefusedValue(
            refusal("heads share channels evenly", f"a divisor of {embed_dim}", num_heads)
        )
    channels, apart = embed_dim // num_heads, kdim not in (None, embed_dim)
    ends = (embed_dim if kdim is None else kdim, embed_dim)
    if score is None:
        score = KeyQuery(num_heads, channels, ends, bias)
        score.key.initial = score.query.initial = as_glorot if apart else as_packed
        score.reset_parameters()
    options = {"value_channels": channels, "value_bias": bias, "bias": bias, **options}
    dropout = 0.0 if isinstance(options.get("normalise"), Normaliser) else dropout
    layer = AttentionConv(
        ends, embed_dim, num_heads, support, score=score, combine="sum", dropout=dropout, **options
    )
    layer.theta.initial = as_separate_values if apart else as_packed_values
    layer.theta.reset_parameters()
    return layer
