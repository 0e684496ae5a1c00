"""AGNN: neighbours weighed by cosines, with one number to learn."""

from __future__ import annotations

from typing import Any

from ...attention import Cosine
from ...equations import row
from ...families import Hops
from ..attention_conv import AttentionConv


@row("Ready-made layers", "1803.03735", "PyG `AGNNConv`")
def agnn_conv(
    requires_grad: bool = True, add_self_loops: bool = True, **options: Any
) -> AttentionConv:
    """Y = Aᵀ X with A[m, n] = softmax over m of β cos(X_m, X_n).

    From the `"Attention-based Graph Neural Network for Semi-supervised Learning"
    <https://arxiv.org/abs/1803.03735>`_ paper; PyG's ``AGNNConv``.

    >>> sum(p.numel() for p in agnn_conv().parameters())
    1

    Args:
        requires_grad: whether β, which begins at 1, is learned.
        add_self_loops: whether every node sees itself, once, whatever loops there are.
        **options: of :class:`AttentionConv`.
    """
    support = Hops(add_self_loops=True if add_self_loops else None)
    score = Cosine(1, learned=requires_grad)
    options = {"support": support, "theta": "identity", "bias": False, **options}
    return AttentionConv(-1, -1, 1, score=score, **options)
