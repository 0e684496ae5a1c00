"""GCN: the normalised adjacency matrix with self-loops."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..basis.edges import EdgeBasis, edge_basis
from ..graph.graph import Graph
from ..graph.norm import NORMS, check_norm, transition
from .family import Family


@dataclass(frozen=True)
class GCN(Family):
    r"""The adjacency matrix with self-loops, normalised.

    .. math:: A_0 = \hat D^{-1/2} (W + I) \hat D^{-1/2}

    with D̂ the in-degrees of W + I, as in PyG's ``gcn_norm``: an existing self-loop keeps its
    weight. Unlike in PyG, all of several self-loops at a node are kept, and ``improved`` also
    applies without weights. Between two sets of nodes, which have no self-loops, D̂ holds the
    out-degrees of the sources and the in-degrees of the targets. From the `"Semi-supervised
    Classification with Graph Convolutional Networks" <https://arxiv.org/abs/1609.02907>`_ paper,
    equation 2.

    On directed graphs D̂ gives weight 0 to edges that leave a node that none reaches.
    ``GCN("both", add_self_loops=False)`` keeps them: it is :math:`D_{out}^{-1/2} W D_{in}^{-1/2}`
    of the `"Edge Directionality Improves Learning on Heterophilic Graphs"
    <https://arxiv.org/abs/2305.10498>`_ paper (Dir-GNN, section 3), and ``Directed`` of it has
    both of the paper's matrices.

    Args:
        norm (str, optional): ``'sym'``, the formula; ``'source'`` or ``'target'``, which divide
            W + I by the degree of the sending or of the receiving node; ``'both'``, which divides
            by the roots of both; or ``None``. (default: ``'sym'``)
        add_self_loops (bool, optional): Whether to add I. Sources and targets must then be the
            same nodes. (default: ``True``)
        improved (bool, optional): Added self-loops weigh 2. (default: ``False``)
        as_pyg (bool, optional): Whether edges are read as PyG's ``gcn_norm`` reads them: of several
            self-loops at a node the last is kept, ``improved`` needs weights, and weights may be
            negative; a negative degree gives NaN. (default: ``False``)

    Raises:
        ValueError: ``norm`` is unknown; when a basis is made, negative weights make a degree that
            is not positive, or self-loops are added between two sets of nodes.
    """

    labels = ("neighbours",)
    makes_edges = True
    equation = "A_0 = D^-1/2 (W + I) D^-1/2, D the in-degrees of W + I"

    norm: str | None = "sym"
    add_self_loops: bool = True
    improved: bool = False
    as_pyg: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm(self.norm)

    @property
    def formula(self) -> str:
        w = "(W + I)" if self.add_self_loops else "W"
        if self.add_self_loops and self.improved:
            w = "(W + 2I)"
        return f"A_0 = {NORMS[self.norm].formula(w)}"

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The normalised edges."""
        return edge_basis(self.weighted(edges, dtype))

    def weighted(self, edges: Graph, dtype: torch.dtype | None = None) -> Graph:
        loops = self.add_self_loops, self.improved, self.as_pyg
        return transition(edges, self.norm, dtype, *loops)
