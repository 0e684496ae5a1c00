"""Degrees, self-loops and the norms that families share."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from .structure import Structure


def check_norm(norm: str | None, known: tuple[str | None, ...]) -> None:
    """Refuse a norm that a family does not have.

    Raises:
        ValueError: ``norm`` is not in ``known``.
    """
    if norm not in known:
        raise RefusedValue(unknown("norm", norm, map(str, known)))


def degree(weight: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """(num_nodes,) the sum of the weights of the edges that touch each node.

    In float32 at least: bfloat16 cannot count past 256.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    return weight.new_zeros(num_nodes, dtype=wide).index_add(0, nodes, weight.to(wide))


def reciprocal(value: Tensor, power: float = 1.0) -> Tensor:
    """value⁻ᵖ, and 0 where the value is 0 (a node without edges sends and receives nothing)."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1).pow(-power), 0)


def with_self_loops(edges: Structure, dtype: torch.dtype | None, fill: float = 1.0) -> Structure:
    """Add a self-loop of weight ``fill`` at every node that has none; loops that exist are kept.

    Raises:
        ValueError: sources and targets are not the same nodes.
    """
    edges.require_square("adding self-loops")
    bare = torch.ones(edges.size[0], dtype=torch.bool, device=edges.device)
    bare[edges.source[edges.source == edges.target].long()] = False
    nodes = bare.nonzero().view(-1).to(edges.edge_index.dtype)
    value = torch.full(nodes.shape, fill, dtype=edges.weight(dtype).dtype, device=edges.device)
    return edges.with_diagonal(value, nodes)


def normalise(edges: Structure, norm: str | None, dtype: torch.dtype | None) -> Structure:
    """Divide edge weights by degrees.

    - 'sym': w / √(d(m) d(n)), d the in-degree at both ends as in PyG; where M ≠ N, the out-degree
      of the source and the in-degree of the target.
    - 'source': w / d_out(m), so that the weights that leave a node sum to one.
    - 'target': w / d_in(n), so that the weights that reach a node sum to one.
    - None: w.

    Raises:
        ValueError: the norm is unknown, or an edge weight is negative where it divides.
    """
    check_norm(norm, ("sym", "source", "target", None))
    if norm is None:
        return edges
    edges.require_nonnegative(f"norm={norm!r}")
    weight, (num_sources, num_targets) = edges.weight(dtype), edges.size
    source, target, narrow = edges.source, edges.target, weight.dtype
    if norm == "source":
        weight = weight * reciprocal(degree(weight, source, num_sources))[source]
    else:
        received = degree(weight, target, num_targets)
        if norm == "target":
            weight = weight * reciprocal(received)[target]
        else:
            sent = received if num_sources == num_targets else degree(weight, source, num_sources)
            weight = reciprocal(sent, 0.5)[source] * weight * reciprocal(received, 0.5)[target]
    return replace(edges, edge_weight=weight.to(narrow))
