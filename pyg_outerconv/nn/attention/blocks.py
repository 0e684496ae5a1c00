"""Blocks of a Transformer over any supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Dropout, LayerNorm, Linear

from ...attention import KeyQuery, Score
from ...equations import row
from ...errors import RefusedType, RefusedValue, refusal, unknown
from ...families import Family
from ...graph.checks import check_positive
from ..checks import check_share
from .multi_head import multi_head_attention


class Skip(torch.nn.Module):
    """norm(X + dropout(f(X))), or X + dropout(f(norm(X))) with the norm first.

    The first is that of the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper
    (section 3.1), the second its pre-norm form, of the `"On Layer Normalization in the Transformer
    Architecture" <https://arxiv.org/abs/2002.04745>`_ paper (section 3.2).

    Args:
        channels: of X.
        dropout: the share of what f gives that is dropped in training.
        norm_first: whether f sees normalised features.
        eps: added to variances.
        bias: whether the norm has one.

    Raises:
        ValueError: the share is out of range.
        TypeError: it is no number.
    """

    def __init__(
        self,
        channels: int,
        dropout: float = 0.0,
        norm_first: bool = False,
        eps: float = 1e-5,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_share("dropout", dropout)
        self.norm, self.dropout = LayerNorm(channels, eps, bias=bias), Dropout(dropout)
        self.norm_first = norm_first

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        self.norm.reset_parameters()

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The skip around a function of x."""
        if self.norm_first:
            return x + self.dropout(function(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(function(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Where the norm is."""
        return f"norm_first={self.norm_first}"


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


class FeedForward(torch.nn.Module):
    """Y = dropout(σ(X W_1 + b_1)) W_2 + b_2, for each node on its own.

    From the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.3.

    Args:
        channels: of input and output.
        hidden: of the layer between; four times as many if None.
        activation: σ: ``'relu'``, ``'gelu'``, ``'silu'`` or a function.
        dropout: the share of hidden values that are dropped in training.
        bias: whether both maps have one.

    Raises:
        ValueError: a number is out of range, or the activation unknown.
        TypeError: the activation is no function, or an option has another type.
    """

    def __init__(
        self,
        channels: int,
        hidden: int | None = None,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("a feed-forward part", channels=channels)
        hidden = 4 * channels if hidden is None else hidden
        check_positive("a feed-forward part", hidden=hidden)
        check_share("dropout", dropout)
        if isinstance(activation, str):
            if activation not in ACTIVATIONS:
                raise RefusedValue(unknown("activation", activation, ACTIVATIONS))
            activation = ACTIVATIONS[activation]
        if not callable(activation):
            raise RefusedType(refusal("an activation is a function", "callable", activation))
        self.activation = activation
        self.first, self.second = Linear(channels, hidden, bias), Linear(hidden, channels, bias)
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        self.first.reset_parameters()
        self.second.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """(*, channels) to (*, channels)."""
        return self.second(self.dropout(self.activation(self.first(x))))  # type: ignore[no-any-return]


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
