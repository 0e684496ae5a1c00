"""Multi-head attention of sequences and sets, linear attention, and pooling by learned queries."""

from __future__ import annotations

from typing import Any

import torch

from ...attention import KeyQuery, LearnedQueries, Normaliser, Score
from ...equations import row
from ...errors import RefusedValue
from ...families import Family
from ...families.linear_attention import LinearAttention
from ...graph.checks import check_positive
from ...signatures import typed
from ..attention_conv import AttentionConv
from ..checks import check_channels
from ..outer_conv import OuterConv
from ..theta_parts import draw_heads
from .graph_attention import as_packed, as_packed_values, as_values


@typed
@row("Ready-made layers", "1706.03762, section 3.2.2", "`torch.nn.MultiheadAttention`")
def multi_head_attention(
    embed_dim: int,
    num_heads: int,
    dropout: float = 0.0,
    bias: bool = True,
    kdim: int | None = None,
    vdim: int | None = None,
    *,
    support: Family | str = "complete",
    score: Score | None = None,
    **options: Any,
) -> AttentionConv:
    """Y = Σ_h A_hᵀ (X V_h + b_h) O_h + b with A_h = softmax(⟨Q_n W_q + b_q, X_m W_k + b_k⟩ / √D).

    ``torch.nn.MultiheadAttention`` with batches first, (*, M, P), of the `"Attention Is All You
    Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.2.2. The support replaces the mask
    (``'causal'``, a window, edges of a graph), and ``source_mask`` at a call marks the sources that
    are present (key padding). Self-attention takes one x, cross-attention a pair: keys and values
    of the first, queries of the second; keys apart from values are an argument ``keys``. A target
    without sources gets the output bias; torch gives NaN. ``learned_sources=1`` is torch's
    ``add_bias_kv``, and ``empty_source=True`` its ``add_zero_attn``.

    >>> import torch
    >>> layer = multi_head_attention(16, 4, support="causal")
    >>> layer(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    >>> layer((torch.randn(2, 7, 16), torch.randn(2, 10, 16))).shape
    torch.Size([2, 10, 16])
    >>> layer, queries = multi_head_attention(16, 4, kdim=5, vdim=3), torch.randn(2, 10, 16)
    >>> layer((torch.randn(2, 7, 3), queries), keys=torch.randn(2, 7, 5)).shape
    torch.Size([2, 10, 16])

    Args:
        embed_dim: channels of queries and outputs; each head has ``embed_dim / num_heads``.
        num_heads: H.
        dropout: dropout probability of attention; ignored if ``normalise`` is a module.
        bias: whether the four projections have a bias.
        kdim: channels of keys; ``embed_dim`` if None.
        vdim: channels of values; those of keys if None.
        support: the sources of each target.
        score: keys and queries, such as those of another layer; None for new ones.
        **options: options of :class:`AttentionConv`.

    Raises:
        ValueError: heads do not divide the channels.
    """
    check_positive("multi-head attention", embed_dim=embed_dim, num_heads=num_heads)
    if embed_dim % num_heads:
        raise RefusedValue("heads share channels evenly", f"a divisor of {embed_dim}", num_heads)
    channels, kdim = embed_dim // num_heads, embed_dim if kdim is None else kdim
    vdim = kdim if vdim is None else vdim
    check_channels("kdim", kdim, -1)
    check_channels("vdim", vdim, -1)
    apart, ends = kdim != embed_dim or vdim != embed_dim, (vdim, embed_dim)
    if score is None:
        score = KeyQuery(num_heads, channels, (kdim, embed_dim), bias)
        score.key.initial = score.query.initial = draw_heads if apart else as_packed
        score.reset_parameters()
    options = {"value_channels": channels, "value_bias": bias, "bias": bias, **options}
    dropout = 0.0 if isinstance(options.get("normalise"), Normaliser) else dropout
    layer = AttentionConv(
        ends, embed_dim, num_heads, support, score=score, combine="sum", dropout=dropout, **options
    )
    if layer.theta.name == "value-output":  # a theta of its own is drawn as others are
        layer.theta.initial = as_values if apart else as_packed_values
        layer.theta.reset_parameters()
    return layer


@typed
@row("Ready-made layers", "1810.00825", "")
def set_pooling(
    in_channels: int,
    out_channels: int,
    heads: int = 1,
    num_queries: int = 1,
    dropout: float = 0.0,
    **options: Any,
) -> AttentionConv:
    """Y = Σ_h A_hᵀ (X V_h + b_h) O_h + b with learned queries, (M, P) to (N, Q).

    Multi-head attention of seed vectors, from the `"Set Transformer"
    <https://arxiv.org/abs/1810.00825>`_ paper (section 3.2), without skip and feed-forward part.
    Outputs do not depend on the order of nodes. With a batch vector, each graph has N outputs, in
    the order of graphs.

    >>> import torch
    >>> pool, x = set_pooling(16, 32, heads=4, num_queries=2), torch.randn(7, 16)
    >>> pool(x).shape
    torch.Size([2, 32])
    >>> pool(x, batch=torch.tensor([0, 0, 0, 1, 1, 1, 1])).shape
    torch.Size([4, 32])

    Args:
        in_channels: P.
        out_channels: Q, a multiple of H; also the channels of queries.
        heads: H.
        num_queries: N.
        dropout: dropout probability of attention.
        **options: options of :func:`multi_head_attention`.
    """
    queries = LearnedQueries(num_queries, out_channels)
    options = {"align": queries, "kdim": in_channels, **options}
    return multi_head_attention(out_channels, heads, dropout, **options)


@typed
@row("Ready-made layers", "2006.16236", "")
def linear_attention(
    in_channels: int | tuple[int, int],
    out_channels: int,
    heads: int = 1,
    channels: int | None = None,
    value_channels: int | None = None,
    feature_map: torch.nn.Module | str = "elu+1",
    causal: bool = False,
    normalised: bool = True,
    **options: Any,
) -> OuterConv:
    """Heads (φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ) / (φ(q_n)ᵀ Σ_m φ(k_m)), concatenated or projected to Y_n.

    From the `"Transformers are RNNs" <https://arxiv.org/abs/2006.16236>`_ paper, equations 5 and 9.
    It is called as ``conv(x)``, with a pair x where M ≠ N, ``batch`` for several graphs, and
    ``source_mask`` for sources that are not there.

    >>> import torch
    >>> conv = linear_attention(16, 8, heads=2, causal=True)
    >>> conv(torch.ones(1000, 16), None).shape
    torch.Size([1000, 8])

    Args:
        in_channels: P, or a pair for sources and targets; -1 to derive it from the first input.
        out_channels: Q.
        heads: H.
        channels: D of keys and queries; Q/H if None.
        value_channels: V of the values of a head, before an output projection; if None, heads of
            Q/H channels are concatenated.
        feature_map: φ, see :class:`~pyg_outerconv.families.LinearAttention`.
        causal: whether targets n have the sources m ≤ n.
        normalised: whether there is a denominator.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: heads do not divide out_channels, where they are concatenated.
    """
    check_positive("linear attention", heads=heads)
    check_channels("out_channels", out_channels, 0)
    if value_channels is None and out_channels % heads:
        rule = "heads side by side share out_channels evenly"
        raise RefusedValue(rule, f"a multiple of {heads}", out_channels)
    width = max(1, out_channels // heads) if channels is None else channels
    family = LinearAttention(
        heads,
        width,
        feature_map=feature_map,
        causal=causal,
        normalised=normalised,
        in_channels=in_channels,
    )
    form = "columns" if value_channels is None else f"value-output(channels={value_channels})"
    return OuterConv(in_channels, out_channels, family, **{"theta": form, **options})
