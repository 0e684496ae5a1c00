"""Relation: the edges with their labels, divided by a norm, as explicit edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..basis.edges import EdgeBasis, edge_basis, pattern_of
from ..equations import row
from ..errors import RefusedValue
from ..graph.graph import Graph
from ..graph.norm import check_norm
from ..kernels.edge_lists import share_of_degrees
from ..kernels.index_checks import can_read, has_numbers
from .family import Family
from .options import check_least


@row(
    "Alignment",
    "weighted, soft",
    "Andreoli, section 4",
    option="`Relation(1, None)`, `Cluster()` with weights",
)
@row("Support", "the edges that are given", "", option="`Relation(1, None)`, any explicit family")
@dataclass(frozen=True)
class Relation(Family):
    r"""One adjacency matrix for each type of edge.

    .. math:: A_r[m, n] = w_{mn} / c_{n,r} \quad\text{over the edges of type } r

    with c the number of edges of type r that reach n (``'mean'``), or 1 (``None``, ``'given'``).
    Means are taken within each relation, and then added up, as in `"Modeling Relational Data with
    Graph Convolutional Networks" <https://arxiv.org/abs/1703.06103>`_ (equation 2).
    With one relation, edge types may be left out, and the mean is GraphSAGE's.

    Args:
        num_relations (int): R, the number of edge types.
        norm (str, optional): ``'mean'``, ``None``, or ``'given'``: the edge weights are the
            constants 1/c of the paper, and required. (default: ``'mean'``)

    Raises:
        ValueError: options are out of range; when a basis is made, an edge type is out of range
            or missing, or weights are missing with ``norm='given'``.
    """

    makes_edges = True
    equation = "A_r = W_r / (number of edges of type r that reach n)"
    reads_beside = ("edge_weight", "edge_type")

    num_relations: int = 1
    norm: str | None = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, num_relations=1)
        check_norm(self.norm, ("mean", "given", None))

    @property
    def num_bases(self) -> int:
        """R, without the names of all relations."""
        return self.num_relations

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"relation {r}" for r in range(self.num_relations))

    @property
    def formula(self) -> str:
        if self.norm != "mean":
            return "A_r = W_r, the weights of the edges of type r"
        return self.equation

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The edges, with their types as labels."""
        is_mean, counts = self.norm == "mean", edges.edge_weight is None
        if is_mean and counts and self.num_relations == 1 and can_read(edges.edge_index):
            weight = self.weighted(edges, dtype).edge_weight
            return EdgeBasis.of_checked_list(pattern_of(edges), weight)
        self._check(edges)
        basis = edge_basis(edges, self.num_relations)
        return basis.mean(dtype) if is_mean else basis

    def weighted(self, edges: Graph, dtype: torch.dtype | None = None) -> Graph:
        self._check(edges)
        if self.norm != "mean":
            return edges
        size, weight = (edges.size[0], edges.size[1] * self.num_relations), edges.edge_weight
        dtype = weight.dtype if weight is not None else dtype or torch.get_default_dtype()
        share = share_of_degrees(edges.with_rows(self.num_relations), size, 0.0, 1.0, dtype)
        return edges.but(edge_weight=share if weight is None else weight * share)

    def _check(self, edges: Graph) -> None:
        if self.norm == "given" and edges.edge_weight is None:
            raise RefusedValue(
                "Relation(norm='given') takes its constants from the edges",
                "edge_weight of shape (E,)",
                "None",
            )
        types = edges.edge_type
        if types is None:
            if self.num_relations > 1:
                raise RefusedValue(
                    f"Relation({self.num_relations}) needs the type of every edge",
                    "edge_type of shape (E,), by its name: edge_type=",
                    "None",
                )
        elif has_numbers(types) and types.numel():
            summary = edges.summary  # of these types, with which a graph is read
            highest = int(types.max()) if summary is None else summary.highest_type
            if highest >= self.num_relations:
                raise RefusedValue(
                    "edge types must be below num_relations", f"[0, {self.num_relations})", highest
                )
