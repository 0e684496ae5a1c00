"""DecoderBlock: attention to itself and to a memory, and feed-forward, with skips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...attention import KeyQuery, Score
from ...equations import row
from ...families import Family
from .feed_forward import FeedForward
from .multi_head import multi_head_attention
from .skip import Skip


@row("Ready-made layers", "1706.03762, section 3.1", "`torch.nn.TransformerDecoderLayer`")
class DecoderBlock(torch.nn.Module):
    """A block of a Transformer's decoder, ``torch.nn.TransformerDecoderLayer``, over any supports.

    ``H = skip(X, self-attention)``, ``G = skip(H, attention to a memory)``, and ``Y = skip(G,
    feed-forward)``; see :class:`Skip`, and the `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_ paper, section 3.1. Batches come first.

    With ``share_score`` both attentions have the same keys and queries, and an
    :class:`EncoderBlock` that is given ``block.score`` has them too: Λ of the three attentions
    are then one, as section 4.2 of *Convolution is outer product* proposes.

    >>> import torch
    >>> block = DecoderBlock(16, 4)
    >>> block(torch.randn(2, 10, 16), torch.randn(2, 7, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        channels: P, of input, memory and output.
        heads: H.
        hidden: channels within the feed-forward part; 4·P if None.
        support: which places each place sees.
        memory_support: which places of the memory it sees.
        dropout: the share that is dropped in training, as in :class:`EncoderBlock`.
        activation: of the feed-forward part: ``'relu'``, ``'gelu'``, ``'silu'`` or a function.
        norm_first: whether norms come before the parts, not after their skips.
        eps: added to variances in norms.
        bias: whether maps and norms have biases.
        score: keys and queries of both attentions, such as those of another block.
        share_score: whether both attentions have the same, if ``score`` is None.
        **options: of :class:`~pyg_outerconv.nn.AttentionConv`, for both attentions.

    Attributes:
        score: the keys and queries of self-attention.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        hidden: int | None = None,
        support: Family | str = "causal",
        memory_support: Family | str = "complete",
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        norm_first: bool = False,
        eps: float = 1e-5,
        bias: bool = True,
        score: Score | None = None,
        share_score: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.attention = multi_head_attention(
            channels, heads, dropout, bias, support=support, score=score, **options
        )
        score = self.attention.family.score if share_score else score
        self.memory_attention = multi_head_attention(
            channels, heads, dropout, bias, support=memory_support, score=score, **options
        )
        self.feed_forward = FeedForward(channels, hidden, activation, dropout, bias)
        self.around_attention, self.around_memory_attention, self.around_feed_forward = (
            Skip(channels, dropout, norm_first, eps, bias) for _ in range(3)
        )

    @property
    def score(self) -> KeyQuery:
        """The keys and queries of self-attention, for other blocks to share."""
        return self.attention.family.score  # type: ignore[no-any-return]

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        edge_index: Any = None,
        memory_index: Any = None,
        source_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Runs the block.

        Args:
            x: (*, N, P).
            memory: (*, M, P), such as what an encoder gives.
            edge_index: what the support reads, or None.
            memory_index: what the support of the memory reads, or None.
            source_mask: (*, N) booleans, the places of x that there are.
            memory_mask: (*, M) booleans, the places of the memory that there are.
        """

        def attend(h: Tensor) -> Tensor:
            return self.attention(h, edge_index, source_mask=source_mask)  # type: ignore[no-any-return]

        def attend_memory(h: Tensor) -> Tensor:
            ends = (memory, h)
            return self.memory_attention(ends, memory_index, source_mask=memory_mask)  # type: ignore[no-any-return]

        x = self.around_attention(x, attend)
        x = self.around_memory_attention(x, attend_memory)
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]
