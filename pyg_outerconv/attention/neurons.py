"""Neurons on both ends of edges, ⟨a, φ(k + q)⟩, without a tensor of edges × channels."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..kernels import Sparsity, additive
from ..kernels.listed import Listed
from ..kernels.tiles import TILE_ELEMENTS, exact, rows_of
from .edge_context import EdgeContext
from .ends import same_batch
from .projection import Projection

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
