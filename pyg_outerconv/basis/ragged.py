"""Bands within each graph of a batch, whose nodes form one sequence per graph."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph.batches import graphs_of
from ..graph.structure import Structure
from .band import Band
from .base import Basis
from .between import spread_runs
from .edges import EdgeBasis
from .implicit_edges import unlabelled_edges


def places(graph: Tensor) -> Tensor:
    """(n,) the position of each node within its graph, in the order of node numbers."""
    graph = graph.long()
    order = graph.sort(stable=True).indices
    begin = torch.searchsorted(graph[order], graph[order])
    within = torch.arange(graph.numel(), device=graph.device) - begin
    return torch.empty_like(within).index_copy_(0, order, within)


def sequence(structure: Structure, left: int | None, right: int | None, dilation: int = 1) -> Basis:
    """A :class:`Band` over nodes in the order of their numbers, within each graph of a batch."""
    sources, targets = structure.size
    band = Band(sources, targets, left, right, dilation, on=structure.device)
    graphs = graphs_of(structure)
    return band if graphs is None else band_within(band, *graphs)


def band_within(
    band: Band, source_graph: Tensor, target_graph: Tensor, target_place: Tensor | None = None
) -> EdgeBasis:
    """The edges of a band within each graph, whose positions count from its first nodes.

    Args:
        band: the limits of the band, with M and N of all nodes.
        source_graph: (M,) the graph of each source.
        target_graph: (N,) the graph of each target.
        target_place: (N,) the position of each target in its graph; None for the order of numbers.
    """
    graph, order = source_graph.long().sort(stable=True)
    wanted = target_graph.long()
    begin = torch.searchsorted(graph, wanted)
    there = torch.searchsorted(graph, wanted, right=True) - begin
    place = places(wanted) if target_place is None else target_place
    first, count = band.seen_from(place, there)
    target, within = spread_runs(count)
    place = (begin + first)[target] + band.dilation * within
    return unlabelled_edges(order[place], target, band.size)
