"""Hops: every target sees the nodes from which a few edges lead to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...basis.edge_products import compose_edges
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.pattern import Pattern
from ...graph.graph import Graph
from ...kernels.edge_lists import with_missing_loops
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
        stays = index[0] != index[1]
        if not can_read(index) or not bool(stays.all()):
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
        found, newest = _keys(step, nodes), step
        for _ in range(self.length - 1):
            ahead = _keys(compose_edges(newest, step, "max"), nodes)
            ahead = ahead[~torch.isin(ahead, found)]
            if not ahead.numel():
                break
            found = torch.cat([found, ahead])
            newest = sorted_pairs(torch.stack([ahead % nodes, ahead // nodes]), edges.size)
        return torch.stack([found % nodes, found // nodes])


def _keys(edges: EdgeBasis, nodes: int) -> Tensor:
    """A key (E,) for each pair of nodes."""
    source, target = edges.index.long()
    return target * nodes + source
