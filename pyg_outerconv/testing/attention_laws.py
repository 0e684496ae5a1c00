"""Laws of attention: equivariance, invariance, and shares that sum to one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.attention_basis import AttentionBasis
from ..basis.multi_head_edges import MultiHeadEdges
from ..graph import EdgeList
from ..nn import OuterConv
from .closeness import TOLERANCE, assert_near


def assert_self_attention_equivariant(
    conv: OuterConv, x: Tensor, edges: EdgeList | None = None
) -> None:
    """Self-attention is permutation-equivariant: f(PX) = P f(X) for a permutation P.

    The structure is relabelled along. The law holds for every score and support that do not depend
    on the order of nodes.

    Args:
        conv: a layer over a content-based family, whose targets are its sources.
        x: (*batch, N, P).
        edges: the structure that the support reads; None if it reads numbers of nodes only.

    Raises:
        AssertionError: the law does not hold.
        ValueError: sources and targets are a pair.
    """
    nodes = torch.randperm(x.size(-2))
    place = torch.argsort(nodes)
    if edges is not None:
        edges.require_one_set("self-attention", "none")
    expected = _run(conv, x, edges, None, None)
    actual = _run(conv, x[..., nodes, :], edges, place, place)
    assert_near(actual, expected[..., nodes, :], 100 * TOLERANCE[x.dtype])


def assert_learned_queries_invariant(
    conv: OuterConv, x: Tensor, edges: EdgeList | None = None
) -> None:
    """Attention with learned queries is permutation-invariant: f(PX) = f(X).

    Args:
        conv: a layer over a content-based family with learned queries.
        x: (*batch, M, P).
        edges: the edges from nodes to queries, if the support reads edges.

    Raises:
        AssertionError: the law does not hold.
    """
    nodes = torch.randperm(x.size(-2))
    expected = _run(conv, x, edges, None, None)
    actual = _run(conv, x[..., nodes, :], edges, torch.argsort(nodes), None)
    assert_near(actual, expected, 100 * TOLERANCE[x.dtype])


def assert_stochastic(basis: Basis) -> None:
    """The shares of each target and head are >= 0 and sum to one, or to zero without edges.

    Args:
        basis: the basis that a layer with a stochastic normaliser returns.

    Raises:
        AssertionError: the law does not hold.
    """
    heads = basis.heads() if isinstance(basis, AttentionBasis) else basis
    assert isinstance(heads, MultiHeadEdges), f"needs the values of heads, not {basis!r}"
    value, pattern = heads.value.detach(), heads.pattern
    assert not value.isnan().any(), "shares are numbers"
    assert bool((value >= 0).all()), "shares are not negative"
    group = pattern.target.long() * pattern.num_labels + pattern.label.long()
    rows = heads.size[1] * pattern.num_labels
    total = value.new_zeros(rows, *value.shape[1:]).index_add(0, group, value)
    assert_near(total, (total > 0.5).to(total.dtype), 10 * TOLERANCE[total.dtype], at_least=1.0)


def _run(
    conv: OuterConv,
    x: Tensor,
    edges: EdgeList | None,
    sources: Tensor | None,
    targets: Tensor | None,
) -> Tensor:
    """The output for relabelled sources and targets, with the edges in a random order."""
    if edges is None:
        return conv(x, None)
    index, order = edges.edge_index.long(), torch.arange(edges.num_edges)
    if sources is not None:
        order = torch.randperm(edges.num_edges)
        places = zip(index, (sources, targets), strict=True)
        index = torch.stack([end if place is None else place[end] for end, place in places])
    beside: dict[str, Any] = {
        name: getattr(edges, name)[order]
        for name in ("edge_attr", "edge_type")
        if getattr(edges, name) is not None and conv.family.makes_use_of(name)
    }
    ends = (x, None) if edges.bipartite else x
    return conv(ends, index[:, order], size=edges.size, **beside)
