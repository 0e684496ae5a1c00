"""Attention over edges, on the edges and self-loops of PyG: GATConv."""

from __future__ import annotations

from typing import Any, Optional

from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, Size

from ..nn.attention import gat_conv
from .layer import DropIn, Recipe
from .reductions import check_reduction
from .tie import Source, heads, same, viewed


def _ends(layer: Any, source: Any, target: Any) -> int | tuple[int, int]:
    """Input channels: one number where both ends share a linear map, else a pair."""
    width: int = source.in_channels
    return width if isinstance(layer.in_channels, int) else (width, target.in_channels)


class GATConv(DropIn, theirs.GATConv):
    r"""Y = Σ_h A_hᵀ X Θ_h, A_h[m, n] = softmax_m leaky_relu(⟨a_s, X_m Θ_h⟩ + ⟨a_t, X_n Θ_h⟩).

    From the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper, equations 3
    to 6.
    """

    takes_pairs = True

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        path = "lin_src" if self.lin is None else "lin"
        source = getattr(self, path)
        shape = self.heads, self.out_channels
        conv = gat_conv(
            _ends(self, source, self.lin_dst),
            self.out_channels,
            self.heads,
            self.concat,
            self.negative_slope,
            self.dropout,
            self.add_self_loops,
            None if self.lin_edge is None else self.lin_edge.in_channels,
            self.fill_value,
            bias=self.bias is not None,
            residual=self.res is not None,
            flow=self.flow,
        )
        score = "functions.0"
        sources = {
            "theta.weight": heads(path, self.heads),
            f"{score}.att_source": viewed("att_src", *shape),
            f"{score}.att_target": viewed("att_dst", *shape),
        }
        if self.lin_dst is not None and self.lin is None:
            sources[f"{score}.ends.target.weight"] = heads("lin_dst", self.heads)
        if self.lin_edge is not None:
            sources[f"{score}.edge.projection.weight"] = heads("lin_edge", self.heads)
            sources[f"{score}.edge.att"] = viewed("att_edge", *shape)
        return conv, sources | outputs(self)

    def forward(
        self,
        x: Any,
        edge_index: Adj,
        edge_attr: OptTensor = None,
        size: Size = None,
        return_attention_weights: Optional[bool] = None,
    ) -> Any:
        unread = self.lin_edge is None
        plain = return_attention_weights is None and (unread or edge_attr is not None)
        conv = self._runs(x, edge_index) if plain else None
        if conv is None:
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        return conv(x, edge_index, edge_attr=None if unread else edge_attr, size=size)


def outputs(layer: Any) -> dict[str, Source]:
    """The bias of the output and the weight of the residual, where a layer has them."""
    found = {}
    if layer.bias is not None:
        found["bias"] = same("bias")
    if layer.res is not None:
        found["root.weight"] = Source(
            "res.weight.T", lambda layer: layer.res.weight.t()[None], ("res",)
        )
    return found
