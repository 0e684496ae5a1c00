"""Bahdanau's score: one layer of tanh neurons on both ends of an edge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from ..graph import Features
from .edge_context import EdgeContext
from .ends import Ends
from .neurons import neuron_scores
from .projection import Projection, Queries
from .score import Dot, Score, glorot, positive


class Bahdanau(Score):
    r"""score[m, n] = ⟨a, tanh(X_m U + Q_n W + E_mn W_e)⟩.

    Appendix A.1.2 of `"Neural Machine Translation by Jointly Learning to Align and Translate"
    <https://arxiv.org/abs/1409.0473>`_, whose v is a. It projects both ends itself, and does not
    share the layer's Θ.

    Args:
        heads: H.
        channels: D, the number of neurons.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        bias: whether projections have a bias.
        edge_dim: D_e of ``edge_attr``, as in :class:`~.gatv2.GATv2`; None for no such term.

    Raises:
        TypeError, ValueError: a number of heads or channels is not a positive integer.
    """

    name = "bahdanau"
    equation = "s[m, n] = <a, tanh(X_m U + Q_n W)>"
    page = ("⟨a, tanh(X_m U + Q_n W)⟩", "Bahdanau et al. (1409.0473), section A.1.2")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(heads)
        positive("channels of a head", channels)
        self.ends = Ends(heads, channels, in_channels, own=True, bias=bias)
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

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        at_source, at_target = self.ends(source, query, support)
        return neuron_scores(at_source, at_target, self.att, support, "tanh", edge=self.edge)
