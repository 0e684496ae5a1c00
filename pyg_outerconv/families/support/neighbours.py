"""Supports of near nodes: by edges of the graph (Hops), or by positions (Nearest)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from ...basis.edge_products import compose_edges
from ...basis.edges import EdgeBasis, no_edges
from ...basis.implicit_edges import sorted_pairs
from ...basis.pattern import Pattern
from ...errors import RefusedValue
from ...graph.cells import Cells
from ...graph.checks import check_positions, holds
from ...graph.graph import Graph
from ...graph.positions import graph_numbers
from ...kernels.capture import refuse_captured
from ...kernels.edge_lists import places_of, with_missing_loops
from ...kernels.index_checks import can_read
from ..options import check_least
from .support import Support


@dataclass(frozen=True)
class Hops(Support):
    r"""The graph's own edges, or the pairs that at most L of them join.

    .. math:: A_0[m, n] = 1 \iff \text{a walk of } 1, \dots, L \text{ edges leads from } m
        \text{ to } n

    Weights of edges are ignored; ``Relation(1, None)`` has the edges with their weights. With L = 1
    edges are kept as they are, also parallel ones; with more hops each pair is in the support once.
    ``Hops(add_self_loops=True)`` is the support of GAT as PyG has it, from the `"Graph Attention
    Networks" <https://arxiv.org/abs/1710.10903>`_ paper, section 2.1.

    Args:
        length (int, optional): L; more than one needs sources and targets that are the same nodes.
            (default: ``1``)
        add_self_loops (bool, optional): if ``True``, every node has exactly one self-loop; if
            ``False``, none; if ``None``, self-loops stay as they are. Between two sets of nodes
            the first min(M, N) sources and targets count as the same nodes, as in PyG.
            (default: ``None``)

    Raises:
        ValueError: the length is not positive; when a basis is made, sources and targets are a
            pair and the length is more than one.
    """

    equation = "A_0[m, n] = 1 where at most L edges lead from m to n"
    page = (
        "a few edges lead from m to n, with or without self",
        "Veličković et al., *Graph Attention Networks* (1710.10903), section 2.1",
    )
    reads = Graph
    symmetries = ("permutation-equivariant",)

    length: int = 1
    add_self_loops: bool | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, length=1)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("edges",) if self.length == 1 else (f"within {self.length} hops",)

    @property
    def makes_edges(self) -> bool:  # type: ignore[override]
        """Whether L = 1, so that there are as many edges, or N more at most."""
        return self.length == 1

    @property
    def is_quick(self) -> bool:  # type: ignore[override]
        """Whether L = 1, so that edges stay as they are."""
        return self.length == 1

    def basis_on(self, structure: Graph, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The edges, or the pairs within L hops."""
        if self.length == 1:
            index, origin = self._with_loops(structure)
            own = index is not structure.edge_index
            return EdgeBasis(Pattern.of_list(index, size=structure.size, origin=origin, own=own))
        structure.require_one_set("more than one hop", "Hops(1)")
        index, _ = self._with_loops(structure.but(edge_index=self._reached(structure)))
        return sorted_pairs(index, structure.size)

    def _with_loops(self, structure: Graph) -> tuple[Tensor, Tensor | int]:
        """Edges (2, E) with the self-loops of the option, and their positions in the user's list.

        The positions are (E,), or the number of first edges that are the user's.
        """
        index, add, origin = structure.edge_index, self.add_self_loops, structure.origin
        origin = index.size(1) if origin is None else origin
        if add is None:
            return index, origin
        count = min(structure.size)
        if add and can_read(index) and type(origin) is int:
            looped = with_missing_loops(index, count)
            if looped.size(1) == index.size(1) + count:  # there was none
                return looped, origin
        stays, summary = index[0] != index[1], None if index.is_cpu else structure.summary
        if summary is not None:
            if summary.num_loops:
                kept = places_of(stays, index.size(1) - summary.num_loops)
                index, origin = index.index_select(1, kept), structure.origins()[kept]
        elif not can_read(index) or not bool(stays.all()):
            if index.is_cuda:
                refuse_captured(index, "self-loops")
            index, origin = index[:, stays], structure.origins()[stays]
        if not add:
            return index, origin
        nodes = torch.arange(count, dtype=index.dtype, device=index.device)
        if isinstance(origin, Tensor) and origin.dim():  # a tracer counts in tensors
            origin = torch.cat([origin, torch.full_like(nodes, -1, dtype=origin.dtype)])
        return torch.cat([index, nodes.expand(2, -1)], dim=1), origin

    def _reached(self, edges: Graph) -> Tensor:
        """The pairs (2, E) that at most ``length`` edges join, each once."""
        nodes = max(edges.size[0], 1)
        step = sorted_pairs(edges.edge_index, edges.size)
        keys, newest = _keys(step, nodes), step
        for _ in range(self.length - 1):
            ahead = _keys(compose_edges(newest, step, "max"), nodes)
            ahead = ahead[~torch.isin(ahead, keys)]
            if not ahead.numel():
                break
            keys = torch.cat([keys, ahead])
            newest = sorted_pairs(torch.stack([ahead % nodes, ahead // nodes]), edges.size)
        return torch.stack([keys % nodes, keys // nodes])


def _keys(edges: EdgeBasis, nodes: int) -> Tensor:
    """A key (E,) for each pair of nodes."""
    source, target = edges.index.long()
    return target * nodes + source


# By positions -------------------------------------------------------------------------------------


TILE = 1 << 18
"""The largest number of distances in memory at once, but at least those of one target."""


@dataclass(frozen=True)
class Nearest(Support):
    r"""The k sources nearest to each target, by the Euclidean distance of their positions.

    .. math:: A_0[m, n] = 1 \iff m \text{ is among the } k \text{ nearest to } n

    Of equally distant sources those with the lowest numbers are taken. It needs ``pos`` (N, D), or
    a pair for sources (M, D) and targets (N, D), with or without edges; cells of a grid are their
    own positions. Nodes of different graphs of a batch are never neighbours. Distances are computed
    for a few rows at a time. The graph of the `"Dynamic Graph CNN" <https://arxiv.org/abs/1801.07829>`_
    paper, section 3.1.

    Args:
        k (int): the number of neighbours; all sources if there are fewer.
        add_self_loops (bool, optional): whether a node may be its own neighbour; sources and
            targets with positions of their own are different nodes. (default: ``False``)

    Raises:
        TypeError: an option has another type; when a basis is made, positions are no numbers.
        ValueError: k is negative; when a basis is made, positions are missing, not finite, or
            have the wrong shape.
    """

    equation = "A_0[m, n] = 1 where m is among the k nearest to n"
    page = (
        "m is among the k nearest to n",
        "Wang et al., *Dynamic Graph CNN* (1801.07829), section 3.1",
    )
    reads_beside = ("pos",)
    symmetries = ("permutation-equivariant",)

    k: int
    add_self_loops: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, k=0)

    @property
    def labels(self) -> tuple[str, ...]:
        return (f"{self.k} nearest",)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> EdgeBasis:
        if structure.is_bare:
            return no_edges(structure.size, structure.device, num_labels=1)
        near, far = _positions(structure)
        without = near is far and not (self.add_self_loops or structure.bipartite)
        (source_graph, by_source), (target_graph, by_target) = [
            graph.long().sort(stable=True) for graph in graph_numbers(structure)
        ]
        first = torch.searchsorted(source_graph, target_graph).tolist()
        last = torch.searchsorted(source_graph, target_graph, right=True).tolist()
        edges = [by_source.new_empty(2, 0)]
        for begin, end in _tiles(first, last):
            here, there = slice(begin, end), slice(first[begin], last[end - 1])
            targets, sources = by_target[here], by_source[there]
            distance = torch.cdist(
                far[targets], near[sources], compute_mode="donot_use_mm_for_euclid_dist"
            )
            apart = target_graph[here].unsqueeze(1) != source_graph[there]
            if without:
                apart = apart | (targets.unsqueeze(1) == sources)
            row, column = _smallest(distance.masked_fill_(apart, inf), self.k)
            edges.append(torch.stack([sources[column], targets[row]]))
        return sorted_pairs(torch.cat(edges, dim=1), structure.size)


def _positions(structure: Any) -> tuple[Tensor, Tensor]:
    """Positions (M, D) and (N, D); one tensor twice, if these are the same nodes."""
    if isinstance(structure, Cells):
        index = structure.listed().index
        assert index is not None
        place = index.double()
        return place, place
    pos = getattr(structure, "pos", None)
    if pos is None:
        raise RefusedValue("Nearest needs positions", "pos (N, D)", "None")
    same = all(end is pos[0] for end in pos)
    ends = (_wide(pos[0]),) * len(pos) if same else tuple(map(_wide, pos))
    check_positions(ends, structure.size)
    for end in ends:
        if not holds(torch.isfinite(end).all()):
            raise RefusedValue("positions must be finite", "numbers", "NaN or infinity")
    return ends[0], ends[1]


def _wide(pos: Any) -> Any:
    """Positions without gradient, in float32 at least."""
    if not isinstance(pos, Tensor) or pos.is_complex() or pos.dtype == torch.bool:
        return pos
    exact = pos.dtype if pos.is_floating_point() else torch.float64
    return pos.detach().to(torch.promote_types(exact, torch.float32))


def _tiles(first: list[int], last: list[int]) -> list[tuple[int, int]]:
    """Ranges of targets with at most TILE distances to their sources, ``first`` to ``last``."""
    tiles, begin = [], 0
    for end in range(1, len(first) + 1):
        is_last = end == len(first)
        if is_last or (end + 1 - begin) * (last[end] - first[begin]) > TILE:
            tiles.append((begin, end))
            begin = end
    return tiles


def _smallest(distance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the smallest finite entries of each row; of equal ones the first."""
    columns = distance.size(1)
    count = min(count, columns)
    if not distance.numel() or not count:
        empty = torch.empty(0, dtype=torch.long, device=distance.device)
        return empty, empty
    value, column = distance.topk(min(count + 1, columns), largest=False)
    tied = torch.zeros_like(value[:, 0], dtype=torch.bool)
    if count < columns:
        tied = (value[:, count - 1] == value[:, count]) & (value[:, count] < inf)
    clear = (value[:, :count] < inf) & ~tied.unsqueeze(1)
    rows = torch.arange(len(value), device=value.device).unsqueeze(1).expand(-1, count)
    tied_row, tied_column = _first_of_equal(distance[tied], count)
    return (
        torch.cat([rows[clear], tied.nonzero().view(-1)[tied_row]]),
        torch.cat([column[:, :count][clear], tied_column]),
    )


def _first_of_equal(distance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """:func:`_smallest` for rows in which the next entry equals the last chosen one."""
    bound = distance.topk(count, largest=False).values[:, -1:]
    closer, equal = distance < bound, distance == bound
    room = count - closer.sum(1, keepdim=True)
    row, column = (closer | (equal & (equal.cumsum(1) <= room))).nonzero(as_tuple=True)
    return row, column
