"""Bilinear: a form Λ of full rank between the features of both ends."""

from __future__ import annotations

from torch import Tensor

from ..graph import Features, SparseFeatures
from .edge_context import EdgeContext
from .projection import Projection, Queries, channels_of, check_queries, project_heads, spread
from .score import Dot, Score


class Bilinear(Score):
    r"""score[m, n] = X_m Λ_h Q_nᵀ, with Λ (H, P, P_q) of any rank.

    Equation 6 of *Convolution is outer product* (section 4) before Λ is factorised; "general" in
    `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1).

    Queries are multiplied by Λᵀ, so that keys are X itself; if X is sparse, X is multiplied by Λ.

    Args:
        heads: H.
        channels: ignored; a form of rank D is :class:`~.key_query.KeyQuery`.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        scale: factor of the form.

    Attributes:
        form: the projection whose weight is Λᵀ (H, P_q, P).
    """

    name = "bilinear"
    equation = "s[m, n] = X_m Lambda Q_n^T"
    page = ("X_m Λ Q_nᵀ", "Andreoli, equation 6; Luong et al. (1508.04025), section 3.1")

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        scale: float = 1.0,
    ) -> None:
        super().__init__(heads)
        of_key, of_query = in_channels if isinstance(in_channels, tuple) else (in_channels,) * 2
        self.scale = float(scale)
        self.form = Projection(of_query, heads, of_key)

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        self.form.reset_parameters()

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        check_queries(self.form, query, source)
        self.form.settle(query, channels_of(source))
        if isinstance(source, SparseFeatures):
            near = project_heads(source, self.form.weight.transpose(1, 2))
            return Dot(spread(query, self.heads), near, self.scale)
        return Dot(self.form(query), spread(source, self.heads), self.scale)
