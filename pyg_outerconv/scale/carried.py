"""A basis of the whole graph whose edges, labels and values go with samples of its nodes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..basis import Basis
from ..basis.algebra import Compound
from ..basis.edge_sets import differ_in_edges, edge_sets, with_edge_sets
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..basis.pattern import Pattern
from ..errors import RefusedValue
from ..families import Family
from ..graph import Graph
from ..signatures import typed

# Attributes with "edge" in their names are those of edges to PyG, also where M = E.
EDGES = ("edge_set", "edge_label", "edge_value")


class Carried:
    """Makes the basis of a sample: the edges of the whole graph between its nodes.

    Values are those of the whole graph: degrees and means are not counted again in a sample. Powers
    of a matrix become powers of the matrix of the sample.

    Args:
        family: the recipe of the basis.
        structure: the whole graph, which the family reads.
        basis: the basis of the whole graph; made here by default.
        mapped: whether its edges are mapped to files, so that nobody may copy all of them.

    Raises:
        ValueError: values learn, or more than edges distinguishes the basis from that of a graph
            without edges, so that edges alone do not carry it.
    """

    @typed
    def __init__(
        self,
        family: Family,
        structure: Graph,
        basis: Basis | None = None,
        mapped: bool = False,
    ) -> None:
        self.family, self._structure, self.mapped = family, structure.bare(), mapped
        self.basis = family.basis_on(structure) if basis is None else basis
        self.num_nodes = structure.size[0]
        # Shares of attention come later, over edges without values.
        if self.basis.learns or structure.bipartite:
            raise RefusedValue(
                "samples carry constant values of one set of nodes",
                "a family without parameters, on a graph with one set of nodes",
                repr(family),
            )
        if _has_rules(self.basis) or not differ_in_edges(self.basis, self.frame(self.num_nodes)):
            raise RefusedValue(
                "samples carry the edges of a basis",
                "a basis of edges and powers, such as that of Explicit(family)",
                repr(family),
            )
        self.sets = edge_sets(self.basis)

    def frame(self, num_nodes: int) -> Basis:
        """The basis of this many nodes without edges."""
        size = (num_nodes, num_nodes)
        bare = replace(self._structure, size=size, batch=None, pos=None)
        return self.family.basis_on(bare, self.basis.dtype)

    def data(self) -> Data:
        """A PyG graph of all edges of the basis, for PyG's loaders.

        It has ``edge_index``, and for each edge the number of its set, its label and its value; and
        ``node``, the number of each node.

        Raises:
            ValueError: the edges are mapped to files.
        """
        if self.mapped:
            raise RefusedValue(
                "PyG's loaders read all edges into memory",
                "RandomNodes, Clusters or Blocks for a basis in mapped files",
                repr(self.family),
            )
        index = [edges.index.long() for edges in self.sets]
        number = [torch.full_like(ends[0], place) for place, ends in enumerate(index)]
        dtype = self.basis.dtype or torch.get_default_dtype()
        none = torch.empty(0, dtype=torch.long)
        return Data(
            edge_index=torch.cat([none.view(1, 0).expand(2, 0), *index], dim=1),
            edge_set=torch.cat([none, *number]),
            edge_label=torch.cat([none, *(edges.label.long() for edges in self.sets)]),
            edge_value=torch.cat([none.to(dtype), *(edges.values(dtype) for edges in self.sets)]),
            node=torch.arange(self.num_nodes),
            num_nodes=self.num_nodes,
        )

    def of_data(self, sample: Data) -> Basis:
        """The basis of a sample of :meth:`data`, in the sample's numbering of nodes."""
        count = sample.node.numel()
        made = []
        for number, whole in enumerate(self.sets):
            mine = (sample.edge_set == number).nonzero().view(-1)
            pattern = Pattern.of_list(
                sample.edge_index[:, mine],
                sample.edge_label[mine] if whole.num_bases > 1 else None,
                size=(count, count),
                num_labels=whole.num_bases,
            )
            value = None if whole.dtype is None else sample.edge_value[mine]
            made.append(EdgeBasis.of_list(pattern, value))
        return self._on(count, made)

    def induced(self, nodes: Tensor) -> Basis:
        """The basis of distinct nodes (n,): the edges between them."""
        return self._on(nodes.numel(), [edges.restricted(nodes, nodes) for edges in self.sets])

    def _on(self, count: int, sets: list[EdgeBasis]) -> Basis:
        return with_edge_sets(self.frame(count), lambda bare: sets[: len(bare)])


def _has_rules(basis: Basis) -> bool:
    """Whether a part of a basis is a rule whose edges a sample of nodes would change."""
    if isinstance(basis, Compound):
        return any(map(_has_rules, basis.parts))
    return isinstance(basis, ImplicitEdges)
