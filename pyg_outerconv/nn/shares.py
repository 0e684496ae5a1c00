"""Attention shares of the edges of ``edge_index``, and the values of edge features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..basis import Basis
from ..basis.multi_head_edges import MultiHeadEdges
from ..errors import RefusedValue
from ..theta import Theta, ThetaValue

if TYPE_CHECKING:
    from .attention_conv import AttentionConv


def shares_of_edges(basis: Basis, edge_index: Any) -> Tensor | None:
    """The shares of the edges of ``edge_index``, then of edges that the family added: (E, H).

    Row e is the sum over all edges of the basis that stem from column e of ``edge_index``; an edge
    that the family left out has zeros. PyG's AttentionExplainer reads them.

    Returns:
        None if edges of the basis do not stem from columns of ``edge_index``, or in a batch.
    """
    heads = basis.shares()
    if heads is None or heads.batch or heads.pattern.origin is None:
        return None
    if not isinstance(edge_index, Tensor) or edge_index.is_sparse or edge_index.dim() != 2:
        return None
    pattern, value, given = heads.pattern, heads.value, edge_index.size(1)
    origin = heads.pattern.origin.long()
    added = origin < 0
    row = origin.masked_scatter(added, given + added.long().cumsum(0)[added] - 1)
    shares = value.new_zeros(given + int(added.sum()), pattern.num_labels, value.size(1))
    return shares.index_put((row, pattern.label.long()), value, accumulate=True).flatten(1)


@contextmanager
def showing_shares(conv: AttentionConv, basis: Basis, edge_index: Any) -> Iterator[None]:
    """Context in which PyG's AttentionExplainer can read the shares from the layer.

    This is the only write to a layer during a call; threads may share layers.
    """
    conv._alpha = shares_of_edges(basis, edge_index)
    try:
        yield
    finally:
        conv._alpha = None


def values_of_edges(
    conv: AttentionConv, basis: Basis, edge_attr: Tensor | None, theta: ThetaValue
) -> Tensor:
    """The sum of the values of edge features, weighted by the shares of each head: (*batch, N, Q).

    Raises:
        ValueError: the basis has no explicit edges.
    """
    if not isinstance(basis, MultiHeadEdges):
        raise RefusedValue("edge features come with the edges of the support", "edges", repr(basis))
    assert isinstance(theta, Theta)  # as the constructor checked
    if conv.explain and conv._edge_mask is not None and basis.pattern.origin is not None:
        mask = conv.edge_mask(basis.pattern.origin.long())
        basis = replace(basis, value=mask.view(-1, *(1,) * (basis.value.dim() - 1)) * basis.value)
    found = theta.collect(conv.family.score.edge.of_values(basis, edge_attr))
    return found if found.dim() == 2 else found.movedim(0, -2)
