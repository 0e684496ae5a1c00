"""Scores that are inner products of both ends of an edge."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..equations import row
from ..errors import RefusedValue
from ..graph import Features, SparseMatrix
from ..graph.checks import check_positive
from .edge_context import EdgeContext
from .edge_features import EdgeFeatures
from .projection import (
    Projection,
    Queries,
    both_ends,
    channels_of,
    check_queries,
    project_heads,
    spread,
)
from .score import Dot, Score


class DotProduct(Score):
    r"""score[m, n] = ⟨Q_n, X_m⟩.

    "dot" in `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1); under a softmax the Gaussian of `"Non-local
    Neural Networks" <https://arxiv.org/abs/1711.07971>`_ (equation 2).

    Args:
        heads: H; all heads are equal, unless each has queries of its own.
        channels, in_channels: ignored.
        scale: factor of the products; 1/√P if None.
    """

    name = "dot-product"
    page = (
        "⟨Q_n, X_m⟩",
        "1508.04025, section 3.1; "
        "Wang et al., *Non-local Neural Networks* (1711.07971), equation 2",
    )

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        scale: float | None = 1.0,
    ) -> None:
        super().__init__(heads)
        self.scale = scale

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        scale = 1.0 / math.sqrt(channels_of(source)) if self.scale is None else float(self.scale)
        return Dot(spread(query, self.heads), spread(source, self.heads), scale)


class Bilinear(Score):
    r"""score[m, n] = X_m Λ_h Q_nᵀ, with Λ (H, P, P_q) of any rank.

    Equation 6 of *Convolution is outer product* (section 4) before Λ is factorised; "general" in
    `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1).

    Queries are multiplied by Λᵀ, so that keys are X itself; if X is sparse, X is multiplied by Λ.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: ignored; a form of rank D is :class:`KeyQuery`.
        scale: factor of the form.

    Attributes:
        form: the projection whose weight is Λᵀ (H, P_q, P).
    """

    name = "bilinear"
    page = ("X_m Λ Q_nᵀ", "Andreoli, equation 6; Luong et al. (1508.04025), section 3.1")

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        scale: float = 1.0,
    ) -> None:
        super().__init__(heads)
        of_key, of_query = both_ends(in_channels)
        self.scale = float(scale)
        self.form = Projection(of_query, heads, of_key)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        check_queries(self.form, query, source)
        self.form.settle(query, channels_of(source))
        if isinstance(source, SparseMatrix):
            near = project_heads(source, self.form.weight.transpose(1, 2))
            return Dot(spread(query, self.heads), near, self.scale)
        return Dot(self.form(query), spread(source, self.heads), self.scale)


@row("Scores", "the same", "Andreoli, section 4.2", option="one `KeyQuery` in several layers")
class KeyQuery(Score):
    r"""score[m, n] = ⟨Q_n W_q + b_q, X_m W_k + b_k⟩ / √D: a bilinear form of rank D.

    Λ = W_k W_qᵀ / √D in equation 6 of *Convolution is outer product* (section 4), the scaled
    dot-product attention of *Attention Is All You Need* (section 3.2). One module may be given to
    several layers, which then share its parameters.

    With edge features keys are K_m + E_mn W_e; rotary positions rotate queries and keys.

    Args:
        heads, channels, in_channels: see :class:`Score`.
        bias: whether keys and queries have a bias.
        scale: factor of the products; 1/√D if None.
        edge: D_e of ``edge_attr``, or an :class:`EdgeFeatures` that values may share; None for keys
            without edge features.
        rotary: a module (x, positions) -> x, such as :class:`Rotary`; it does not rotate edge
            features.

    Raises:
        ValueError: ``edge`` has other heads or channels, or ``rotary`` other channels.
    """

    name = "key-query"
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
        check_positive("a score", channels=channels)
        self.channels = channels
        self.scale = 1.0 / math.sqrt(channels) if scale is None else float(scale)
        of_key, of_query = both_ends(in_channels)
        self.key = Projection(of_key, heads, channels, bias)
        self.query = Projection(of_query, heads, channels, bias)
        self.edge = EdgeFeatures(edge, heads, channels) if isinstance(edge, int) else edge
        if self.edge is not None and (self.edge.heads, self.edge.channels) != (heads, channels):
            raise RefusedValue(
                "edge features are added to keys",
                f"{heads} heads of {channels} channels",
                f"{self.edge.heads} of {self.edge.channels}",
            )
        turned = getattr(rotary, "channels", channels)
        if turned != channels:
            raise RefusedValue(
                "rotary positions turn keys and queries", f"{channels} channels", turned
            )
        self.rotary = rotary
        read = {"edge_attr": self.edge, "pos": rotary}
        self.reads_beside = tuple([name for name, by in read.items() if by is not None])

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        check_queries(self.query, query, source)
        at_target, at_source = self.query(query), self.key(source)
        bias = None if self.edge is None else self.edge.of_keys(at_target, support) * self.scale
        if self.rotary is not None:
            of_source, of_target = support.positions
            at_target = self.rotary(at_target, of_target)
            at_source = self.rotary(at_source, of_source)
        return Dot(at_target, at_source, self.scale, bias)


class EmbeddedGaussian(KeyQuery):
    r"""score[m, n] = ⟨Q_n W_q, X_m W_k⟩, whose exponential a softmax normalises.

    Equation 3 of `"Non-local Neural Networks" <https://arxiv.org/abs/1711.07971>`_, with θ = W_q
    and φ = W_k.

    Args:
        heads, channels, in_channels: see :class:`Score`.
        bias: whether keys and queries have a bias.
    """

    name = "embedded-gaussian"
    page = ("⟨Q_n W_q, X_m W_k⟩", "1711.07971, equation 3")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
    ) -> None:
        super().__init__(heads, channels, in_channels, bias, scale=1.0)
