"""GATv2's score: one layer of leaky ReLU neurons on both ends of an edge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..graph import Features
from .edge_context import EdgeContext
from .ends import Ends
from .neurons import neuron_scores
from .projection import Projection, Queries
from .score import Dot, Score, glorot, positive


class GATv2(Score):
    r"""score[m, n] = ⟨a, leaky_relu(X_m Θ + Q_n W_t + E_mn W_e)⟩.

    Equation 7 of `"How Attentive are Graph Attention Networks?"
    <https://arxiv.org/abs/2105.14491>`_, whose W for sources is the layer's own Θ, with the bias of
    its values if they have one. Unlike in :class:`~.additive.Additive`, the leaky ReLU comes before
    the sum over channels, so each edge takes D operations; edges are processed in tiles of bounded
    size.

    Args:
        heads: H.
        channels: D; where Θ transforms, the channels of a value.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        own: whether the score projects sources itself, instead of sharing Θ, as it must in a
            ``Stack``, where Θ has other labels too.
        shared: whether queries are transformed as sources are.
        bias: whether projections have a bias.
        negative_slope: slope of the leaky ReLU below zero.
        edge_dim: D_e of ``edge_attr``, whose projections are added too; None for no such term. The
            backward pass then computes tiles of edges again, which ``torch.func`` cannot transform.

    Raises:
        TypeError, ValueError: a number of heads or channels is not a positive integer.
    """

    name = "gatv2"
    equation = "s[m, n] = <a, leaky_relu(X_m Theta + Q_n W_t)>"
    page = ("⟨a, leaky_relu(X_m Θ + Q_n W)⟩", "Brody et al., *GATv2* (2105.14491), equation 7")
    uses_theta = True
    takes_any_order = True

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        own: bool = False,
        shared: bool = False,
        bias: bool = False,
        negative_slope: float = 0.2,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(heads)
        positive("channels of a head", channels)
        self.uses_theta = not own
        self.negative_slope = float(negative_slope)
        self.ends = Ends(heads, channels, in_channels, own, shared, bias)
        self.att = Parameter(torch.empty(heads, channels))
        self.edge = None if edge_dim is None else Projection(edge_dim, heads, channels)
        self.reads_beside = () if edge_dim is None else ("edge_attr",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        self.ends.reset_parameters()
        glorot(self.att)
        if self.edge is not None:
            self.edge.reset_parameters()

    def values(self, source: Features, theta: Any) -> Tensor | None:
        """The values X_m Θ_h, (M, *batch, H, V), or None if the score projects sources."""
        return self.ends.values(source, theta)

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        at_source, at_target = self.ends(source, query, support)
        slope = self.negative_slope
        return neuron_scores(
            at_source, at_target, self.att, support, "leaky_relu", slope, self.edge
        )
