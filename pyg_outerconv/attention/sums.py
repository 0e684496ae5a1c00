"""Scores that are sums over both ends of an edge: GAT, SuperGAT, and layers of neurons (GATv2)."""

from __future__ import annotations

import math
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn.inits import glorot

from ..graph import Features
from ..kernels import CSR, additive
from ..kernels.edge_sums import Listed
from ..kernels.tiles import TILE_ELEMENTS, exact, rows_of
from .edge_context import EdgeContext
from .projection import EdgeScores, Ends, Projection, Queries, over_batch, same_batch
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
        super().reset_parameters()
        glorot(self.att_source)
        glorot(self.att_target)

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

    def _leaky_sum(self, at_source: Tensor, at_target: Tensor, support: EdgeContext) -> Tensor:
        """The leaky ReLU of the sum of both ends, (M, *batch, H) and (N, *batch, H)."""
        at_source, at_target = exact(at_source), exact(at_target)
        batch = same_batch(at_source, at_target)
        total = support.add(at_target, at_source)
        if self.edge is not None:
            total = total + over_batch(self.edge(support), batch)
        return torch.nn.functional.leaky_relu(total, self.negative_slope)


# SuperGAT: products of transformed features, by themselves or as a gate ---------------------------


class SuperGAT(Score):
    r"""score[m, n] = leaky_relu(⟨X_m Θ, Q_n Θ⟩ / √D).

    The scaled dot product (SD) of `"How to Find Your Friendly Neighborhood: Graph Attention Design
    with Self-Supervision" <https://openreview.net/forum?id=Wi5KUNlqWty>`_, equation 4, under the
    leaky ReLU of GAT. With a slope of 1 the score is a plain product, and no tensor of scores is
    needed.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: D, the channels of a value.
        shared: whether queries are transformed by Θ too; if None, they are unless ``in_channels``
            is a pair.
        negative_slope: slope of the leaky ReLU below zero.
    """

    name = "supergat-sd"
    page = ("leaky_relu(⟨X_m Θ, Q_n Θ⟩ / √D)", "Kim & Oh, *SuperGAT* (ICLR 2021), equation 4")
    uses_theta = True
    takes_any_order = True
    is_mixed: ClassVar[bool] = False

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        shared: bool | None = None,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__(heads)
        self.negative_slope = float(negative_slope)
        shared = not isinstance(in_channels, tuple) if shared is None else shared
        self.ends = Ends(heads, channels, in_channels, shared=shared)
        self.scale = 1.0 if self.is_mixed else 1.0 / math.sqrt(channels)
        if self.is_mixed:
            self.att_source = Parameter(torch.empty(heads, channels))
            self.att_target = Parameter(torch.empty(heads, channels))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.is_mixed:
            glorot(self.att_source)
            glorot(self.att_target)

    def values(self, source: Features, theta: Any) -> Tensor | None:
        return self.ends.values(source, theta)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.ends(source, query, support)
        if self.negative_slope == 1.0 and not self.is_mixed:
            return Dot(at_target, at_source, self.scale)
        same_batch(at_source[..., 0], at_target[..., 0])
        at_source, at_target = exact(at_source), exact(at_target)
        scores = support.dot(at_target * self.scale, at_source)
        if self.is_mixed:
            of_source = (at_source * self.att_source.to(at_source.dtype)).sum(-1)
            of_target = (at_target * self.att_target.to(at_target.dtype)).sum(-1)
            scores = support.add(of_target, of_source) * scores.sigmoid()
        return torch.nn.functional.leaky_relu(scores, self.negative_slope)


class SuperGATMixed(SuperGAT):
    r"""score[m, n] = leaky_relu((⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩) σ(⟨X_m Θ, Q_n Θ⟩)).

    The mixed score (MX) of `"How to Find Your Friendly Neighborhood: Graph Attention Design with
    Self-Supervision" <https://openreview.net/forum?id=Wi5KUNlqWty>`_, section 4.1: the score of
    GAT times the sigmoid σ of the dot product, the probability of an edge. Both factors are a
    number for each edge and head.

    Args:
        heads, channels, in_channels, shared, negative_slope: see :class:`SuperGAT`.
    """

    name = "supergat-mx"
    page = (
        "leaky_relu((⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩) σ(⟨X_m Θ, Q_n Θ⟩))",
        "Kim & Oh, *SuperGAT* (ICLR 2021), section 4.1",
    )

    is_mixed = True


# A layer of neurons on both ends ------------------------------------------------------------------


_ACTIVATIONS = {"leaky_relu": torch.nn.functional.leaky_relu, "tanh": lambda z, _: torch.tanh(z)}


class Neurons(Score):
    r"""score[m, n] = ⟨a, φ(k_m + q_n + E_mn W_e)⟩, with k and q from :class:`~.projection.Ends`.

    Scores are in float32 at least. Without edge features they are one primitive. With edge features
    they are computed in tiles of edges, again in the backward pass, which ``torch.func`` cannot
    transform.

    Args:
        ends: the features of both ends.
        edge_dim: D_e of ``edge_attr``, or None for no such term.
        negative_slope: slope of the leaky ReLU below zero.

    Attributes:
        activation: φ, 'leaky_relu' or 'tanh'.
        att: a (H, D).
    """

    activation: ClassVar[str]
    takes_any_order = True

    def __init__(self, ends: Ends, edge_dim: int | None, negative_slope: float = 0.2) -> None:
        super().__init__(ends.heads)
        self.uses_theta = ends.source is None
        self.negative_slope = float(negative_slope)
        self.ends = ends
        self.att = Parameter(torch.empty(ends.heads, ends.channels))
        self.edge = None if edge_dim is None else Projection(edge_dim, ends.heads, ends.channels)
        self.reads_beside = () if edge_dim is None else ("edge_attr",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        glorot(self.att)

    def values(self, source: Features, theta: Any) -> Tensor | None:
        return self.ends.values(source, theta)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.ends(source, query, support)
        batch = same_batch(at_source[..., 0], at_target[..., 0])
        attr = None if self.edge is None else support.edge_attr
        if isinstance(entries := support.entries, Listed):
            total = entries.add(exact(at_target), exact(at_source))
            if self.edge is not None and attr is not None:
                sent = self.edge(attr).to(total.dtype)
                total = total + sent.view(sent.size(0), *(1,) * len(batch), *sent.shape[1:])
            return (_ACTIVATIONS[self.activation](total, self.negative_slope) * self.att).sum(-1)
        at_source, at_target = support.fold(exact(at_source)), support.fold(exact(at_target))
        options: Any = {"activation": self.activation, "negative_slope": self.negative_slope}
        label_scores, heads = [], self.heads // support.num_labels
        for label, (part, places) in enumerate(support.label_parts()):
            own = (label * heads, heads)
            weight = self.att.narrow(0, *own).expand(prod(batch), heads, -1).flatten(0, 1)
            operands = at_target, at_source, weight.to(at_source.dtype)
            if attr is None:
                label_scores.append(additive(part, *operands, **options))
            else:
                of_label = attr if places is None else attr.index_select(0, places)
                label_scores.append(self._in_tiles(part, *operands, of_label, own))
        return support.unfold(support.join_labels(label_scores), self.heads, batch)

    def _in_tiles(
        self,
        part: CSR,
        at_target: Tensor,
        at_source: Tensor,
        weight: Tensor,
        attr: Tensor,
        own: tuple[int, int],
    ) -> Tensor:
        """Scores (E, B·H) of one label with edge features (E, D_e), tile by tile."""
        assert self.edge is not None
        self.edge.settle(attr)
        of_edge = self.edge.weight.narrow(0, *own)
        items = weight.size(0) // of_edge.size(0)  # of a batch
        row = rows_of(part.ptr, part.index.numel())

        def tile(
            at_target: Tensor, at_source: Tensor, weight: Tensor, of_edge: Tensor, at: slice
        ) -> Tensor:
            dtype = at_source.dtype
            sent = torch.einsum("ed,hdc->ehc", attr[at].to(dtype), of_edge.to(dtype))
            z = at_target.index_select(0, row[at]) + at_source.index_select(0, part.index[at])
            z = z + sent.repeat(1, items, 1)
            return (_ACTIVATIONS[self.activation](z, self.negative_slope) * weight).sum(-1)

        operands = (at_target, at_source, weight, of_edge)
        # Counted tiles would fix the number of edges of a compiled graph. One tile holds products
        # of all edge features, which compilers do not fuse.
        if torch.compiler.is_compiling():
            return tile(*operands, slice(None))
        step = max(1, TILE_ELEMENTS // max(1, weight.numel()))
        tiles = [slice(s, s + step) for s in range(0, max(part.num_entries, 1), step)]
        # torch.func allows no checkpoint.
        if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return torch.cat([tile(*operands, at) for at in tiles])
        recompute: Any = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.cat([checkpoint(tile, *operands, at, **recompute) for at in tiles])


class GATv2(Neurons):
    r"""score[m, n] = ⟨a, leaky_relu(X_m Θ + Q_n W_t + E_mn W_e)⟩.

    Equation 7 of `"How Attentive are Graph Attention Networks?"
    <https://arxiv.org/abs/2105.14491>`_, whose W for sources is the layer's own Θ, with the bias of
    its values if they have one. Unlike in :class:`Additive`, the leaky ReLU comes before the sum
    over channels, so each edge takes D operations; edges are processed in tiles of bounded size.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: D; where Θ transforms, the channels of a value.
        own: whether the score projects sources itself, instead of sharing the Θ_h of its heads,
            which must make values of D channels.
        shared: whether queries are transformed as sources are.
        bias: whether projections have a bias.
        negative_slope: slope of the leaky ReLU below zero.
        edge_dim: D_e of ``edge_attr``, whose projections are added too; see :class:`Neurons`.
    """

    name = "gatv2"
    page = ("⟨a, leaky_relu(X_m Θ + Q_n W)⟩", "Brody et al., *GATv2* (2105.14491), equation 7")
    activation = "leaky_relu"
    uses_theta = True

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
        ends = Ends(heads, channels, in_channels, own, shared, bias)
        super().__init__(ends, edge_dim, negative_slope)


class Bahdanau(Neurons):
    r"""score[m, n] = ⟨a, tanh(X_m U + Q_n W + E_mn W_e)⟩.

    Appendix A.1.2 of `"Neural Machine Translation by Jointly Learning to Align and Translate"
    <https://arxiv.org/abs/1409.0473>`_, whose v is a. It projects both ends itself, and does not
    share the layer's Θ.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: D, the number of neurons.
        bias: whether projections have a bias.
        edge_dim: D_e of ``edge_attr``; see :class:`Neurons`.
    """

    name = "bahdanau"
    page = ("⟨a, tanh(X_m U + Q_n W)⟩", "Bahdanau et al. (1409.0473), section A.1.2")
    activation = "tanh"

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(Ends(heads, channels, in_channels, own=True, bias=bias), edge_dim)
