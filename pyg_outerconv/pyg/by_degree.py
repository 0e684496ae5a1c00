"""MFConv: a matrix for each degree of the target."""

from __future__ import annotations

from typing import NamedTuple, Union

import torch
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, Size

from ..cache import IdentityCache
from ..families import Relation
from ..nn import OuterConv
from .layer import DropIn, Recipe
from .reductions import check_reduction, reduction
from .tie import linear

_kept = IdentityCache()


class MFConv(DropIn, theirs.MFConv):
    r"""Y = Σ_k A_kᵀ X Θ_k + S_k (X Θ'_k + b_k), A_k = A S_k, S_k[n, n] = 1 where n has degree k.

    The degree of a target is the label of its edges, and of itself; one above ``max_degree`` counts
    as that. So there are two convolutions, over the edges and over the nodes. From the
    `"Convolutional Networks on Graphs for Learning Molecular Fingerprints"
    <https://arxiv.org/abs/1509.09292>`_ paper, algorithm 2.
    """

    takes_pairs = True

    def lacks(self) -> list[str]:
        return check_reduction(self)

    def recipe(self) -> Recipe:
        count, by_degree = self.max_degree + 1, Relation(self.max_degree + 1, None)
        left, right = (lins[0].in_channels for lins in (self.lins_l, self.lins_r))
        over_edges = OuterConv(
            left,
            self.out_channels,
            by_degree,
            bias=False,
            aggr=reduction(self),
            flow=self.flow,
        )
        over_nodes = OuterConv(right, self.out_channels, by_degree, bias=False)
        convs = ModuleList([over_edges, over_nodes])
        names = [[f"lins_{end}.{k}" for k in range(count)] for end in "lr"]
        return convs, {f"{i}.theta.weight": linear(*paths) for i, paths in enumerate(names)}

    def forward(
        self, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        convs = self._runs(x, edge_index)
        if convs is None:
            return super().forward(x, edge_index, size)
        source, target = (x, x) if isinstance(x, Tensor) else x
        count = source.size(0) if size is None else size[1]
        count = count if target is None else target.size(0)
        found = _degrees(edge_index, count, self.max_degree, self.flow)
        over_edges, over_nodes = convs
        out = over_edges(x, edge_index, edge_type=found.of_edges, size=size)
        if target is not None:
            out = out + over_nodes(target, found.loops, edge_type=found.of_nodes)
        if self.lins_l[0].bias is None:
            return out
        return out + torch.stack([lin.bias for lin in self.lins_l]).index_select(0, found.of_nodes)


class Degrees(NamedTuple):
    """Degrees, not above a largest one.

    Attributes:
        of_nodes: (N,) of each target.
        of_edges: (E,) of the target of each edge.
        loops: (2, N) an edge from each target to itself.
    """

    of_nodes: Tensor
    of_edges: Tensor
    loops: Tensor


def _degrees(edge_index: Tensor, count: int, most: int, flow: str) -> Degrees:
    """The degrees of targets, kept as long as the edges."""

    def make() -> Degrees:
        target = edge_index[1 if flow == "source_to_target" else 0]
        of_nodes = torch.bincount(target, minlength=count).clamp_(max=most)
        each = torch.arange(count, device=target.device)
        return Degrees(of_nodes, of_nodes[target], torch.stack([each, each]))

    return _kept.get(edge_index, (), (count, most, flow), make)  # type: ignore[no-any-return]
