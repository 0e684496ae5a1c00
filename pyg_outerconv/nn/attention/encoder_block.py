"""EncoderBlock: attention and feed-forward with skips, over any support."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...attention import Score
from ...equations import row
from ...errors import RefusedType, refusal
from ...families import Family
from .feed_forward import FeedForward
from .multi_head import multi_head_attention
from .skip import Skip


@row("Ready-made layers", "1706.03762, section 3.1", "`torch.nn.TransformerEncoderLayer`")
class EncoderBlock(torch.nn.Module):
    """A block of a Transformer's encoder, ``torch.nn.TransformerEncoderLayer``, over any support.

    ``H = skip(X, attention)``, then ``Y = skip(H, feed-forward)``; see :class:`Skip`. Batches come
    first, (*, M, P). With ``support='complete'`` it is the block of the `"Attention Is All You
    Need" <https://arxiv.org/abs/1706.03762>`_ paper (section 3.1), with ``'causal'`` that of a
    language model, and with ``Hops()`` one on graphs. Rotary positions are of the score, and
    relative ones are ``terms``.

    >>> import torch
    >>> from pyg_outerconv.attention import ALiBi, Rotary
    >>> from pyg_outerconv.attention import KeyQuery
    >>> block = EncoderBlock(16, 4, support="causal", norm_first=True, terms=(ALiBi(4),))
    >>> block(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    >>> turned = KeyQuery(4, 4, bias=True, rotary=Rotary(4))  # 4 heads of 16 / 4 channels
    >>> EncoderBlock(16, 4, support="causal", score=turned)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        channels: P, of input and output.
        heads: H.
        hidden: channels within the feed-forward part; 4·P if None.
        support: which sources each target sees.
        dropout: the share that is dropped in training: of attention, of what it gives, of hidden
            values and of what the feed-forward part gives.
        activation: of the feed-forward part: ``'relu'``, ``'gelu'``, ``'silu'`` or a function.
        norm_first: whether norms come before the parts, not after their skips.
        eps: added to variances in norms.
        bias: whether maps and norms have biases.
        score: keys and queries in the place of own ones, such as those of another block.
        **options: of :class:`~pyg_outerconv.nn.AttentionConv`.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        hidden: int | None = None,
        support: Family | str = "complete",
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        norm_first: bool = False,
        eps: float = 1e-5,
        bias: bool = True,
        score: Score | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.attention = multi_head_attention(
            channels, heads, dropout, bias, support=support, score=score, **options
        )
        self.feed_forward = FeedForward(channels, hidden, activation, dropout, bias)
        self.around_attention, self.around_feed_forward = (
            Skip(channels, dropout, norm_first, eps, bias) for _ in range(2)
        )

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor, edge_index: Any = None, **beside: Any) -> Tensor:
        """Runs the block.

        Args:
            x: (*, M, P).
            edge_index: what the support reads, or None.
            **beside: what else :class:`~pyg_outerconv.nn.AttentionConv` takes at a call, such as
                ``source_mask`` (*, M), the places that there are.

        Raises:
            TypeError: x is a pair, or the basis is asked for too.
        """
        if not isinstance(x, Tensor) or beside.get("return_attention_weights"):
            raise RefusedType(
                refusal(
                    "a block goes from the features of nodes to their features",
                    "one x, and block.attention for the basis",
                    type(x).__name__,
                )
            )
        x = self.around_attention(x, lambda h: self.attention(h, edge_index, **beside))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]
