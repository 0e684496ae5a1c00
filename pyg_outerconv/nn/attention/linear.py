"""Linear attention: an :class:`OuterConv` over the family ``LinearAttention``."""

from __future__ import annotations

from typing import Any

import torch

from ...equations import row
from ...errors import RefusedValue, refusal
from ...families.linear_attention import LinearAttention
from ...graph.checks import check_positive
from ..checks import check_channels
from ..outer_conv import OuterConv


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
    """Y_n = Σ_h φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ / φ(q_n)ᵀ Σ_m φ(k_m), heads side by side or projected.

    From the `"Transformers are RNNs" <https://arxiv.org/abs/2006.16236>`_ paper, equations 5 and 9.
    It is called ``conv(x)``, with a pair for x where M ≠ N, and ``batch`` for several graphs.

    >>> import torch
    >>> conv = linear_attention(16, 8, heads=2, causal=True)
    >>> conv(torch.ones(1000, 16), None).shape
    torch.Size([1000, 8])

    Args:
        in_channels: P, or those of sources and targets; -1 to learn them from the first input.
        out_channels: Q.
        heads: H.
        channels: D of keys and queries; Q/H if None.
        value_channels: V of the values of a head, which an output projection follows; if None,
            heads of Q/H channels are put side by side.
        feature_map: φ, see :class:`~pyg_outerconv.families.LinearAttention`.
        causal: whether n sees m ≤ n alone.
        normalised: whether the denominator is there.
        **options: of :class:`OuterConv`.

    Raises:
        ValueError: heads do not divide out_channels, where they are put side by side.
    """
    check_positive("linear attention", heads=heads)
    check_channels("out_channels", out_channels, 0)
    if value_channels is None and out_channels % heads:
        raise RefusedValue(
            refusal(
                "heads side by side share out_channels evenly",
                f"a multiple of {heads}",
                out_channels,
            )
        )
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
