"""Dot product of the features of both ends, without parameters."""

from __future__ import annotations

import math

from torch import Tensor

from ..graph import Features
from .edge_context import EdgeContext
from .projection import Queries, channels_of, spread
from .score import Dot, Score


class DotProduct(Score):
    r"""score[m, n] = ⟨Q_n, X_m⟩.

    "dot" in `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1); under a softmax the Gaussian of `"Non-local
    Neural Networks" <https://arxiv.org/abs/1711.07971>`_ (equation 2).

    Args:
        heads: H; all heads are equal, unless each has queries of its own.
        channels: ignored.
        in_channels: ignored.
        scale: factor of the products; 1/√P if None.
    """

    name = "dot-product"
    equation = "s[m, n] = <Q_n, X_m>"
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

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        scale = 1.0 / math.sqrt(channels_of(source)) if self.scale is None else float(self.scale)
        return Dot(spread(query, self.heads), spread(source, self.heads), scale)
