"""Nearest: every target sees the sources nearest to it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from ...basis.edges import EdgeBasis, no_edges
from ...basis.implicit_edges import sorted_pairs
from ...errors import RefusedValue
from ...graph.cells import Cells
from ...graph.checks import check_positions, holds
from ...graph.positions import graph_numbers
from ..options import check_least
from .support import Support

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
        found = [by_source.new_empty(2, 0)]
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
            found.append(torch.stack([sources[column], targets[row]]))
        return sorted_pairs(torch.cat(found, dim=1), structure.size)


def _positions(structure: Any) -> tuple[Tensor, Tensor]:
    """Positions (M, D) and (N, D); one tensor twice, if these are the same nodes."""
    if isinstance(structure, Cells):
        index = structure.listed().index
        assert index is not None
        place = index.double()
        return place, place
    given = getattr(structure, "pos", None)
    if given is None:
        raise RefusedValue("Nearest needs positions", "pos (N, D)", "None")
    same = all(end is given[0] for end in given)
    ends = (_wide(given[0]),) * len(given) if same else tuple(map(_wide, given))
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
