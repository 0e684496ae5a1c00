"""Additive scores of GAT: the numbers of both ends of an edge, added, then a leaky ReLU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot, reset

from ..basis.additive_attention import AdditiveAttentionBasis
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..graph import Features
from ..kernels.attend_ends import can_attend_ends
from ..kernels.index_checks import surely
from ..kernels.tiles import exact
from ..theta import Theta
from .edge_context import EdgeContext
from .edge_features import EdgeScores
from .ends import Ends, over_batch, same_batch
from .projection import Queries
from .score import Dot, Score


class Additive(Score):
    r"""score[m, n] = leaky_relu(⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩ + ⟨a_e, E_mn W_e⟩).

    Equation 3 of `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_, whose a is
    (a_t, a_s), and whose W is the layer's own Θ. The score is linear before the leaky ReLU, so each
    node contributes H numbers, and no vector is needed for an edge.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: D; where Θ transforms, the channels of a value.
        own: whether the score projects sources itself, instead of sharing the Θ_h of its heads,
            which must make values of D channels.
        shared: whether queries are transformed as sources are; if None, they are unless
            ``in_channels`` is a pair.
        negative_slope: slope of the leaky ReLU below zero.
        edge_dim: D_e of ``edge_attr``, whose term is added to the score; None for no such term.
    """

    name = "additive"
    page = ("leaky_relu(⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩)", "1710.10903, equation 3")
    uses_theta = True
    needs_queries = False
    takes_any_order = True

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        own: bool = False,
        shared: bool | None = None,
        negative_slope: float = 0.2,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(heads)
        shared = not isinstance(in_channels, tuple) if shared is None else shared
        self.uses_theta = not own
        self.negative_slope = float(negative_slope)
        self.ends = Ends(heads, channels, in_channels, own, shared)
        self.att_source = Parameter(torch.empty(heads, channels))
        self.att_target = Parameter(torch.empty(heads, channels))
        self.edge = None if edge_dim is None else EdgeScores(edge_dim, heads, channels)
        self.reads_beside = () if edge_dim is None else ("edge_attr",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset(self.ends)
        glorot(self.att_source)
        glorot(self.att_target)
        if self.edge is not None:
            self.edge.reset_parameters()

    def values(self, source: Features, theta: Any) -> Tensor | None:
        """The values X_m Θ_h, (M, *batch, H, V); None where X Θ_h a_h is cheaper directly."""
        return self.ends.values(source, theta, folds=True)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.ends.dots(
            source, query, support, self.att_source, self.att_target
        )
        return self._leaky_sum(at_source, at_target, support)

    def of_sources(self, source: Features, support: EdgeContext) -> Dot | Tensor:
        """The scores without features of targets, which then add nothing, as in PyG."""
        at_source = self.ends.dot_of_source(source, support, self.att_source)
        return self._leaky_sum(
            at_source, at_source.new_zeros(support.size[1], *at_source.shape[1:]), support
        )

    def sums_at_once(self, source: Features, theta: Any) -> bool:
        """Whether values and the numbers of both ends can be one dense product of the features."""
        own = self.edge is not None or self.ends.source is not None or self.ends.target is not None
        if own or not isinstance(source, Tensor) or source.dim() != 2:
            return False
        if not isinstance(theta, Theta) or theta.heads is None or theta.bias is not None:
            return False
        fits = theta.inner.shape == (self.heads, 1, source.size(1), self.ends.channels)
        return fits and can_attend_ends(source, theta.value, self.att_source, self.att_target)

    def at_once(
        self, source: Features, theta: Any, over: EdgeBasis | ImplicitEdges
    ) -> Basis | None:
        """The softmax of the scores as a basis that adds up values without making scores."""
        if not isinstance(over, EdgeBasis) or over.dtype is not None:
            return None
        nodes, pattern = source.size(0), over.pattern  # type: ignore[union-attr]
        fits = pattern.num_labels == 1 and pattern.size == (nodes, nodes)
        if not fits or surely(pattern.num_edges == 0):
            return None
        vectors = self.att_source, self.att_target
        return AdditiveAttentionBasis(over, source, theta.value, *vectors, self.negative_slope)  # type: ignore[arg-type]

    def _leaky_sum(self, at_source: Tensor, at_target: Tensor, support: EdgeContext) -> Tensor:
        """The leaky ReLU of the sum of both ends, (M, *batch, H) and (N, *batch, H)."""
        at_source, at_target = exact(at_source), exact(at_target)
        batch = same_batch(at_source, at_target)
        found = support.add(at_target, at_source)
        if self.edge is not None:
            found = found + over_batch(self.edge(support), batch)
        return torch.nn.functional.leaky_relu(found, self.negative_slope)
