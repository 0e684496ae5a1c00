"""Scores by a layer of neurons on both ends of an edge, without a tensor of edges × channels."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint

from ..graph import Features
from ..kernels import Sparsity, additive
from ..kernels.listed import Listed
from ..kernels.tiles import TILE_ELEMENTS, exact, rows_of
from .edge_context import EdgeContext
from .ends import Ends, same_batch
from .projection import Projection, Queries
from .score import Dot, Score, glorot, positive

_ACTIVATIONS = {"leaky_relu": torch.nn.functional.leaky_relu, "tanh": lambda z, _: torch.tanh(z)}


def neuron_scores(
    at_source: Tensor,
    at_target: Tensor,
    weight: Tensor,
    support: EdgeContext,
    activation: str,
    slope: float = 0.2,
    edge: Projection | None = None,
) -> Tensor:
    """⟨a_h, φ(k[m, h] + q[n, h] + E_e W_h)⟩ on the edges: (E, *batch, H/L).

    Scores are in float32 at least. Without edge features they are one primitive. With edge
    features they are computed in tiles of edges, again in the backward pass.

    Args:
        at_source: k (M, *batch, H, D).
        at_target: q (N, *batch, H, D).
        weight: a (H, D).
        support: the edges.
        activation: φ, 'leaky_relu' or 'tanh'.
        slope: slope of the leaky ReLU below zero.
        edge: the projection of edge features, or None for none.

    Raises:
        ValueError: both ends differ in their batch, or ``edge`` finds no edge features.
    """
    batch = same_batch(at_source[..., 0], at_target[..., 0])
    attr = None if edge is None else support.edge_attr
    if isinstance(entries := support.entries, Listed):
        total = entries.add(exact(at_target), exact(at_source))
        if edge is not None and attr is not None:
            sent = edge(attr).to(total.dtype)
            total = total + sent.view(sent.size(0), *(1,) * len(batch), *sent.shape[1:])
        return (_ACTIVATIONS[activation](total, slope) * weight).sum(-1)
    at_source, at_target = support.fold(exact(at_source)), support.fold(exact(at_target))
    found, heads = [], weight.size(0) // support.num_labels
    for label, (part, places) in enumerate(support.label_parts()):
        own = (label * heads, heads)
        wide = (
            weight.narrow(0, *own).expand(prod(batch), heads, -1).flatten(0, 1).to(at_source.dtype)
        )
        if edge is None or attr is None:
            options = {"activation": activation, "negative_slope": slope}
            found.append(additive(part, at_target, at_source, wide, **options))  # type: ignore[arg-type]
        else:
            of_label = attr if places is None else attr.index_select(0, places)
            of_edges = (of_label, edge, own, (activation, slope))
            found.append(_in_tiles(part, at_source, at_target, wide, *of_edges))
    return support.unfold(support.join_labels(found), weight.size(0), batch)


def _in_tiles(
    part: Sparsity,
    at_source: Tensor,
    at_target: Tensor,
    weight: Tensor,
    attr: Tensor,
    edge: Projection,
    own: tuple[int, int],
    activation: tuple[str, float],
) -> Tensor:
    """Scores (E, B·H) with edge features (E, D_e), tile by tile."""
    edge.settle(attr)
    phi, slope = _ACTIVATIONS[activation[0]], activation[1]
    of_edge = edge.weight.narrow(0, *own)
    heads = weight.size(0) // of_edge.size(0)  # the items of a batch

    def tile(
        at_source: Tensor, at_target: Tensor, weight: Tensor, of_edge: Tensor, at: slice
    ) -> Tensor:
        sent = torch.einsum(
            "ed,hdc->ehc", attr[at].to(at_source.dtype), of_edge.to(at_source.dtype)
        )
        z = at_target.index_select(0, row[at]) + at_source.index_select(0, part.col[at])
        z = phi(z + sent.repeat(1, heads, 1), slope)
        return (z * weight).sum(-1)

    row = rows_of(part.rowptr)
    step = max(1, TILE_ELEMENTS // max(1, weight.numel()))
    starts = range(0, max(part.num_entries, 1), step)
    operands = (at_source, at_target, weight, of_edge)
    if not torch.is_grad_enabled():
        return torch.cat([tile(*operands, slice(s, s + step)) for s in starts])
    recompute = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(tile, *operands, slice(s, s + step), **recompute) for s in starts])  # type: ignore[arg-type]


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
