"""Layers over the normalised adjacency matrix of GCN: GCNConv."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import Adj, OptTensor

from ..families import GCN, Family, Relation
from ..nn import OuterConv
from .layer import DropIn, Recipe
from .reductions import check_reduction, reduction
from .tie import linear, same


def normalised(layer: Any) -> Family:
    """The family of a layer with ``normalize``, ``add_self_loops`` and perhaps ``improved``."""
    if not getattr(layer, "normalize", True) or getattr(layer, "cached", False):
        return Relation(1, None)  # of cached edges, which were normalised once
    loops, improved = getattr(layer, "add_self_loops", False), getattr(layer, "improved", False)
    return GCN("sym", loops, improved, as_pyg=True)


def cached_edges(
    layer: Any, x: Tensor, edge_index: Tensor, edge_weight: OptTensor
) -> tuple[Tensor, OptTensor]:
    """The normalised edges of the first call where a layer is ``cached``, as PyG keeps them."""
    if not layer.cached or not layer.normalize:
        return edge_index, edge_weight
    if layer._cached_edge_index is None:
        layer._cached_edge_index = gcn_norm(
            edge_index,
            edge_weight,
            x.size(layer.node_dim),
            getattr(layer, "improved", False),
            layer.add_self_loops,
            layer.flow,
            x.dtype,
        )
    return layer._cached_edge_index  # type: ignore[no-any-return]


class GCNConv(DropIn, theirs.GCNConv):
    r"""Y = Aᵀ X Θ with A = D^-1/2 (W + I) D^-1/2, D the in-degrees of W + I.

    From the `"Semi-supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper, equation 2.
    """

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum", "mean")

    def recipe(self) -> Recipe:
        bias = self.bias is not None
        channels = self.lin.in_channels, self.out_channels
        conv = OuterConv(
            *channels, normalised(self), bias=bias, aggr=reduction(self), flow=self.flow
        )
        sources = {"theta.weight": linear("lin")}
        return conv, {**sources, "bias": same("bias")} if bias else sources

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        conv = self._runs(x, edge_index, edge_weight)
        if conv is None:
            return super().forward(x, edge_index, edge_weight)
        edge_index, edge_weight = cached_edges(self, x, edge_index, edge_weight)
        return conv(x, edge_index, edge_weight)
