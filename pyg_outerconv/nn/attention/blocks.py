"""Blocks of a Transformer over any supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Dropout, LayerNorm, Linear
from torch_geometric.nn.inits import reset

from ...attention import KeyQuery, RelativeBias, Score
from ...equations import row
from ...errors import RefusedType, RefusedValue, unknown
from ...families import Blocks, Family, GlobalTokens, RandomLinks, SlidingWindow
from ...families import Union as UnionOf
from ...graph.checks import check_dense, check_positive
from ...signatures import typed
from ..checks import check_share
from .multi_head import multi_head_attention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


class Skip(torch.nn.Module):
    """norm(X + dropout(f(X))), or X + dropout(f(norm(X))) with the norm first.

    The first is that of the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper
    (section 3.1), the second its pre-norm form, of the `"On Layer Normalization in the Transformer
    Architecture" <https://arxiv.org/abs/2002.04745>`_ paper (section 3.2).

    Args:
        channels: channels of X.
        dropout: dropout probability of f(X).
        norm_first: whether f reads normalised features.
        eps: number added to variances.
        bias: whether the norm has a bias.

    Raises:
        TypeError, ValueError: the dropout is not a number in [0, 1).
    """

    @typed
    def __init__(
        self,
        channels: int,
        dropout: float = 0.0,
        norm_first: bool = False,
        eps: float = 1e-5,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("a skip", channels=channels)
        check_share("dropout", dropout)
        self.norm, self.dropout = LayerNorm(channels, eps, bias=bias), Dropout(dropout)
        self.norm_first = norm_first

    def reset_parameters(self) -> None:
        """Reset the norm."""
        self.norm.reset_parameters()

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The skip around a function of x, (*, channels).

        Raises:
            TypeError: x is no dense floating point tensor, or the function no function.
            ValueError: x has other channels.
        """
        (channels,), weight = self.norm.normalized_shape, self.norm.weight
        check_dense("a skip is around a function of features", x, channels, beside=weight)
        if not callable(function):
            raise RefusedType("a skip is around a function", "a function", type(function).__name__)
        if self.norm_first:
            return x + self.dropout(function(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(function(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Whether the norm is first."""
        return f"norm_first={self.norm_first}"


class FeedForward(torch.nn.Module):
    """Y = dropout(σ(X W_1 + b_1)) W_2 + b_2, for each node.

    From the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.3.

    Args:
        channels: channels of input and output.
        hidden: hidden channels; four times as many if None.
        activation: σ: ``'relu'``, ``'gelu'``, ``'silu'`` or a function.
        dropout: dropout probability of hidden values.
        bias: whether both linear maps have a bias.

    Raises:
        ValueError: a number is out of range, or the activation unknown.
        TypeError: the activation is not a function, or an option has another type.
    """

    @typed
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
        self.activation = activation
        self.first, self.second = Linear(channels, hidden, bias), Linear(hidden, channels, bias)
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Reset both linear maps."""
        self.first.reset_parameters()
        self.second.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """(*, channels) to (*, channels).

        Raises:
            TypeError: x is no dense floating point tensor.
            ValueError: x has other channels.
        """
        first = self.first
        check_dense("a feed-forward part maps features", x, first.in_features, beside=first.weight)
        return self.second(self.dropout(self.activation(self.first(x))))  # type: ignore[no-any-return]


class _Block(torch.nn.Module):
    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        for part in self.children():
            reset(part)


@row("Ready-made layers", "1706.03762, section 3.1", "`torch.nn.TransformerEncoderLayer`")
class EncoderBlock(_Block):
    """The block of a Transformer's encoder, ``torch.nn.TransformerEncoderLayer``, on any support.

    ``H = skip(X, attention)``, then ``Y = skip(H, feed-forward)``; see :class:`Skip`. With
    ``support='complete'`` it is the block of the `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_ paper (section 3.1), with ``'causal'`` that of a language
    model, and with ``Hops()`` a block on graphs. Rotary positions are an option of the score, and
    relative ones are ``terms``.

    >>> import torch
    >>> from pyg_outerconv.attention import ALiBi, KeyQuery, Rotary
    >>> block = EncoderBlock(16, 4, support="causal", norm_first=True, terms=(ALiBi(4),))
    >>> block(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    >>> rotated = KeyQuery(4, 4, bias=True, rotary=Rotary(4))  # 4 heads of 16 / 4 channels
    >>> EncoderBlock(16, 4, support="causal", score=rotated)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        channels: P, of input and output.
        heads: H.
        hidden: hidden channels of the feed-forward part; 4·P if None.
        support: the sources of each target.
        dropout: dropout probability of attention, of its output, of hidden values, and of the
            output of the feed-forward part.
        activation: activation of the feed-forward part: ``'relu'``, ``'gelu'``, ``'silu'`` or a
            function.
        norm_first: whether norms come before attention and feed-forward, instead of after the sums.
        eps: number added to variances in norms.
        bias: whether linear maps and norms have a bias.
        score: keys and queries, such as those of another block; None for new ones.
        **options: options of :class:`~pyg_outerconv.nn.AttentionConv`.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    @typed
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

    def forward(self, x: Tensor, edge_index: Any = None, **beside: Any) -> Tensor:
        """Runs the block.

        Args:
            x: (*, M, P).
            edge_index: the structure that the support reads, or None.
            **beside: further arguments of :class:`~pyg_outerconv.nn.AttentionConv` at a call, such
                as ``source_mask`` (*, M), which marks the sources that are present.

        Returns:
            (*, M, P).

        Raises:
            TypeError: x is a pair, or attention weights are asked for.
        """
        weights = beside.get("return_attention_weights")
        if not isinstance(x, Tensor) or (weights is not None and weights is not False):
            rule = "a block goes from the features of nodes to their features"
            expected = "one x, and block.attention for the basis"
            asked = f"return_attention_weights={type(weights).__name__}"
            raise RefusedType(rule, expected, asked if isinstance(x, Tensor) else type(x).__name__)
        x = self.around_attention(x, lambda h: self.attention(h, edge_index, **beside))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]


@row("Ready-made layers", "1706.03762, section 3.1", "`torch.nn.TransformerDecoderLayer`")
class DecoderBlock(_Block):
    """The block of a Transformer's decoder, ``torch.nn.TransformerDecoderLayer``, on any supports.

    ``H = skip(X, self-attention)``, ``G = skip(H, attention to a memory)``, and ``Y = skip(G,
    feed-forward)``; see :class:`Skip`, and the `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_ paper, section 3.1.

    With ``share_score`` both attentions have the same keys and queries. If an
    :class:`EncoderBlock` has ``block.score`` too, Λ of the three attentions is the same, as section
    4.2 of *Convolution is outer product* proposes.

    >>> import torch
    >>> block = DecoderBlock(16, 4)
    >>> block(torch.randn(2, 10, 16), torch.randn(2, 7, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        channels: P, of input, memory and output.
        heads, hidden, dropout, activation, norm_first, eps, bias: see :class:`EncoderBlock`.
        support: the sources of each target.
        memory_support: the sources in the memory of each target.
        score: keys and queries of both attentions, such as those of another block.
        share_score: whether both attentions share keys and queries, if ``score`` is None.
        **options: options of :class:`~pyg_outerconv.nn.AttentionConv`, for both attentions.

    Attributes:
        score: the keys and queries of self-attention.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    @typed
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

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        edge_index: Any = None,
        memory_index: Any = None,
        source_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        edge_attr: Tensor | None = None,
        memory_attr: Tensor | None = None,
    ) -> Tensor:
        """Runs the block.

        Args:
            x: (*, N, P).
            memory: (*, M, P), such as the output of an encoder.
            edge_index: the structure that the support reads, or None.
            memory_index: the structure that the support of the memory reads, or None.
            source_mask: (*, N) booleans, the nodes of x that are present.
            memory_mask: (*, M) booleans, the nodes of the memory that are present.
            edge_attr, memory_attr: attributes of the edges of both structures, or None.

        Returns:
            (*, N, P).
        """
        own = {"source_mask": source_mask, "edge_attr": edge_attr}
        other = {"source_mask": memory_mask, "edge_attr": memory_attr}
        x = self.around_attention(x, lambda h: self.attention(h, edge_index, **own))
        x = self.around_memory_attention(
            x, lambda h: self.memory_attention((memory, h), memory_index, **other)
        )
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]


@row(
    "Ready-made layers",
    "1706.03762, section 3.1",
    "`torch.nn.TransformerEncoder`, `TransformerDecoder`",
)
class BlockStack(_Block):
    """Blocks one after the other, and a norm behind the last one.

    Of encoder blocks it is ``torch.nn.TransformerEncoder``, of decoder blocks
    ``torch.nn.TransformerDecoder``, on any supports.

    >>> import torch
    >>> stack = BlockStack([EncoderBlock(16, 4) for _ in range(3)], torch.nn.LayerNorm(16))
    >>> stack(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        blocks: of one kind.
        norm: what is applied to the output of the last block, or None.

    Raises:
        TypeError: an argument has another type.
    """

    @typed
    def __init__(
        self,
        blocks: Sequence[EncoderBlock] | Sequence[DecoderBlock],
        norm: torch.nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.blocks, self.norm = torch.nn.ModuleList(blocks), norm

    def forward(self, x: Tensor, *args: Any, **beside: Any) -> Tensor:
        """Runs the blocks, each with x of the one before and the same further arguments."""
        for block in self.blocks:
            x = block(x, *args, **beside)
        return x if self.norm is None else self.norm(x)


@row("Ready-made layers", "1706.03762, section 3.1", "`torch.nn.Transformer`")
class EncoderDecoder(_Block):
    """A decoder whose memory is the output of an encoder, ``torch.nn.Transformer`` on any supports.

    >>> import torch
    >>> encoder, decoder = BlockStack([EncoderBlock(16, 4)]), BlockStack([DecoderBlock(16, 4)])
    >>> EncoderDecoder(encoder, decoder)(torch.randn(2, 7, 16), torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])

    Args:
        encoder: of encoder blocks.
        decoder: of decoder blocks.

    Raises:
        TypeError: an argument has another type.
    """

    @typed
    def __init__(self, encoder: BlockStack, decoder: BlockStack) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self, source: Tensor, x: Tensor, of_source: dict[str, Any] | None = None, **beside: Any
    ) -> Tensor:
        """Runs the encoder on ``source`` (*, M, P), and the decoder on x (*, N, P).

        Args:
            source, x: the inputs of the encoder and of the decoder.
            of_source: further arguments of the encoder by name, such as ``source_mask``.
            **beside: further arguments of the decoder, such as ``memory_mask``.

        Returns:
            (*, N, P).
        """
        memory = self.encoder(source, **(of_source or {}))
        return self.decoder(x, memory, **beside)  # type: ignore[no-any-return]


# Blocks whose attention is local ------------------------------------------------------------------


@typed
@row("Ready-made layers", "2103.14030", "")
def windowed_block(
    channels: int,
    heads: int,
    window: int | tuple[int, ...] = 7,
    shift: int | tuple[int, ...] = 0,
    relative: bool = True,
    dim: int = 2,
    **options: Any,
) -> EncoderBlock:
    """An encoder block on a grid with attention within windows.

    From the `"Swin Transformer" <https://arxiv.org/abs/2103.14030>`_ paper (sections 3.1 and 3.2):
    norms first, GELU, and a learned bias of each head for each relative position. In the paper,
    shifts of 0 and of half a window alternate. Windows are cut at the borders; see
    :class:`~pyg_outerconv.families.Blocks`.

    >>> import torch
    >>> from pyg_outerconv import Cells, flatten_grid
    >>> block, images = windowed_block(8, 2, window=4, shift=2), torch.randn(3, 8, 12, 16)
    >>> block(flatten_grid(images), Cells.of_shape((12, 16))).shape
    torch.Size([3, 192, 8])

    Args:
        channels: P.
        heads: H.
        window: cells of a window along all axes, or along each.
        shift: cells by which windows are shifted, along all axes or along each.
        relative: whether scores have a bias for relative positions.
        dim: number of axes of the grid, if ``window`` is one number.
        **options: options of :class:`EncoderBlock`.
    """
    sizes = window if isinstance(window, tuple) else (window,) * dim
    for size in sizes:
        check_positive("a windowed block", window=size)
    moved = shift if isinstance(shift, tuple) else (shift,) * len(sizes)
    terms = (RelativeBias(heads, tuple(size - 1 for size in sizes)),) if relative else ()
    options = {"norm_first": True, "activation": "gelu", "terms": terms, **options}
    return EncoderBlock(channels, heads, support=Blocks(sizes, moved), **options)


@typed
@row("Ready-made layers", "2004.05150", "")
def long_sequence_block(
    channels: int,
    heads: int,
    window: int,
    num_global: int = 0,
    num_random: int = 0,
    dilation: int = 1,
    **options: Any,
) -> EncoderBlock:
    """An encoder block on sequences with sliding windows, global tokens and random links.

    From the `"Longformer" <https://arxiv.org/abs/2004.05150>`_ paper (section 3.1), or with random
    links that of the `"Big Bird" <https://arxiv.org/abs/2007.14062>`_ paper (section 2). Global
    tokens have the same projections as others. Work and memory are linear in the length.

    >>> import torch
    >>> long_sequence_block(8, 2, window=3, num_global=1)(torch.randn(2, 50, 8)).shape
    torch.Size([2, 50, 8])

    Args:
        channels: P.
        heads: H.
        window: sources on each side of a target; half of a window in Longformer.
        num_global: number of the first tokens that are sources and targets of all.
        num_random: number of random sources of each target.
        dilation: distance between neighbours in a window.
        **options: options of :class:`EncoderBlock`.
    """
    parts: list[Family] = [SlidingWindow(window, dilation)]
    parts += [GlobalTokens(num_global)] if num_global else []
    parts += [RandomLinks(num_random)] if num_random else []
    support = parts[0] if len(parts) == 1 else UnionOf(*parts)
    return EncoderBlock(channels, heads, support=support, **options)
