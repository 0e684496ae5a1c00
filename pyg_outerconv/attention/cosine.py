"""Cosine: the cosine of the angle between two vectors of features, times a factor β."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from ..graph import Features
from .edge_context import EdgeContext
from .ends import projections
from .projection import Queries, spread
from .score import Dot, Score


class Cosine(Score):
    r"""score[m, n] = β cos(X_m, Q_n), or of their projections; 0 where a vector is zero.

    With one learned β it is the score of `"Attention-based Graph Neural Network for
    Semi-supervised Learning" <https://arxiv.org/abs/1803.03735>`_ (AGNN). With projections, and a
    β = 1/τ for each head that stays below 100, the scaled cosine attention of `"Swin Transformer
    V2" <https://arxiv.org/abs/2111.09883>`_ (section 3.3, equation 2):
    ``Cosine(H, D, projected=True, per_head=True, beta=10.0, at_most=100.0)``.

    Args:
        heads: H.
        channels: D, where features are projected; else ignored.
        in_channels: P of the sources, or a pair (P, P_q), for projections.
        beta: β, or its initial value.
        learned: whether β is a parameter.
        per_head: whether each head has its own β.
        projected: whether keys and queries are projections, or the features as they are.
        at_most: upper bound of β, or None.
    """

    name = "cosine"
    equation = "s[m, n] = beta cos(X_m, Q_n)"
    page = (
        "β cos(X_m, Q_n)",
        "Thekumparampil et al., *AGNN* (1803.03735); Swin V2 (2111.09883), equation 2",
    )

    beta: Tensor

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        beta: float = 1.0,
        learned: bool = True,
        per_head: bool = False,
        projected: bool = False,
        at_most: float | None = None,
    ) -> None:
        super().__init__(heads)
        self.begins, self.at_most = float(beta), at_most
        count = heads if per_head else 1
        if learned:
            self.beta = Parameter(torch.empty(count))
        else:
            self.register_buffer("beta", torch.empty(count), persistent=False)
        self.ends = projections(heads, channels, in_channels) if projected else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        torch.nn.init.constant_(self.beta, self.begins)
        if self.ends is not None:
            self.ends.reset_parameters()

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        if self.ends is None:
            at_source, at_target = spread(source, self.heads), spread(query, self.heads)
        else:
            at_source, at_target = self.ends(source, query, support)
        beta = self.beta if self.at_most is None else self.beta.clamp(max=self.at_most)
        return Dot(unit(at_target) * beta.to(at_target.dtype).unsqueeze(-1), unit(at_source))


def unit(x: Tensor) -> Tensor:
    """The vectors divided by their lengths; zero vectors stay zero.

    Each is divided by its largest entry first, so that no square overflows.
    """
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1.0)
    square = (x * x).sum(-1, keepdim=True)
    empty = square == 0
    return x * square.masked_fill(empty, 1.0).rsqrt().masked_fill(empty, 0.0)
