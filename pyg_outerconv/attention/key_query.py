"""Key and query: scaled products of projected queries and keys, a form of rank D."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..equations import row
from ..errors import RefusedValue, refusal
from ..graph import Features
from .edge_context import EdgeContext
from .edge_features import EdgeFeatures
from .projection import Projection, Queries, check_queries
from .score import Dot, Score, positive


@row("Scores", "the same", "Andreoli, section 4.2", option="one `KeyQuery` in several layers")
class KeyQuery(Score):
    r"""score[m, n] = ⟨Q_n W_q + b_q, X_m W_k + b_k⟩ / √D: a bilinear form of rank D.

    Λ = W_k W_qᵀ / √D in equation 6 of *Convolution is outer product* (section 4), the scaled
    dot-product attention of *Attention Is All You Need* (section 3.2). One module may be given to
    several layers, which then share its parameters.

    With edge features keys are K_m + E_mn W_e; rotary positions rotate queries and keys.

    Args:
        heads: H.
        channels: D of each head.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        bias: whether keys and queries have a bias.
        scale: factor of the products; 1/√D if None.
        edge: D_e of ``edge_attr``, or an :class:`~.edge_features.EdgeFeatures` that values may
            share; None for keys without edge features.
        rotary: a module (x, positions) -> x, such as :class:`~pyg_outerconv.attention.Rotary`; it
            does not rotate edge features.

    Raises:
        ValueError: ``edge`` has other heads or channels, or ``rotary`` other channels.
    """

    name = "key-query"
    equation = "s[m, n] = <Q_n W_q, X_m W_k> / sqrt(D)"
    page = ("⟨Q_n W_q, X_m W_k⟩ / √D", "Andreoli, section 4, Λ of rank D; 1706.03762, equation 1")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
        scale: float | None = None,
        edge: EdgeFeatures | int | None = None,
        rotary: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(heads)
        self.channels = positive("channels of a head", channels)
        self.scale = 1.0 / math.sqrt(channels) if scale is None else float(scale)
        of_key, of_query = in_channels if isinstance(in_channels, tuple) else (in_channels,) * 2
        self.key = Projection(of_key, heads, channels, bias)
        self.query = Projection(of_query, heads, channels, bias)
        self.edge = EdgeFeatures(edge, heads, channels) if isinstance(edge, int) else edge
        if self.edge is not None and (self.edge.heads, self.edge.channels) != (heads, channels):
            raise RefusedValue(
                refusal(
                    "edge features are added to keys",
                    f"{heads} heads of {channels} channels",
                    f"{self.edge.heads} of {self.edge.channels}",
                )
            )
        turned = getattr(rotary, "channels", channels)
        if turned != channels:
            raise RefusedValue(
                refusal("rotary positions turn keys and queries", f"{channels} channels", turned)
            )
        self.rotary = rotary
        read = {"edge_attr": self.edge, "pos": rotary}
        self.reads_beside = tuple([name for name, by in read.items() if by is not None])

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        self.key.reset_parameters()
        self.query.reset_parameters()
        if self.edge is not None:
            self.edge.reset_parameters()

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        check_queries(self.query, query, source)
        at_target, at_source = self.query(query), self.key(source)
        bias = None if self.edge is None else self.edge.of_keys(at_target, support) * self.scale
        if self.rotary is not None:
            of_source, of_target = support.positions
            at_target, at_source = (
                self.rotary(at_target, of_target),
                self.rotary(at_source, of_source),
            )
        return Dot(at_target, at_source, self.scale, bias)
