"""Attention by how alike the features of both ends are: SuperGATConv, AGNNConv."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from ..basis.pattern import Pattern
from ..errors import RefusedType
from ..kernels import sddmm
from ..nn.attention import agnn_conv, super_gat_conv
from .attention import EdgeAttention, looped, of_nodes, outputs
from .layer import DropIn, Recipe, as_linear, as_weighted
from .tie import heads, same, viewed


class SuperGATConv(EdgeAttention, theirs.SuperGATConv):
    """Y = Σ_h A_hᵀ X Θ_h, A_h[m, n] = softmax_m leaky_relu(s_h[m, n]), with scores s of products.

    ``'SD'``: s_h[m, n] = ⟨X_m Θ_h, X_n Θ_h⟩ / √C; ``'MX'``: the score of GAT times
    σ(⟨X_m Θ_h, X_n Θ_h⟩). In training the products of sampled edges are kept for
    ``get_attention_loss()``.
    """

    lin_edge: Any = None
    res: Any = None
    least = 2**18

    def recipe(self) -> Recipe:
        conv = super_gat_conv(
            self.lin.in_channels,
            self.out_channels,
            self.heads,
            self.concat,
            self.negative_slope,
            self.dropout,
            self.add_self_loops,
            self.bias is not None,
            self.attention_type,
            flow=self.flow,
        )
        sources = {"theta.weight": heads("lin", self.heads)}
        if self.attention_type == "MX":
            shape = self.heads, self.out_channels
            sources["functions.0.att_source"] = viewed("att_l", *shape)
            sources["functions.0.att_target"] = viewed("att_r", *shape)
        return conv, sources | outputs(self)

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        edge_index: Adj,
        neg_edge_index: OptTensor = None,
        batch: OptTensor = None,
    ) -> Tensor:
        if self.add_self_loops and torch.compiler.is_compiling():
            out = of_nodes(conv(*looped(self, x, edge_index)[:2]), x)
        else:
            out = conv(x, edge_index)
        if self.training:
            self._keep_products(x, edge_index, neg_edge_index, batch)
        if self.attention_type == "SD":  # of features alone
            return as_linear(out) if self.bias is None else as_weighted(out, self, "bias")
        return as_weighted(out, self, "att_l")

    def _keep_products(
        self, x: Tensor, edge_index: Tensor, negative: OptTensor, batch: OptTensor
    ) -> None:
        """Set ``att_x``, the products of sampled edges and of pairs without edges, and ``att_y``.

        The samples are drawn as PyG draws them.
        """
        if self.add_self_loops:
            edge_index, _ = remove_self_loops(edge_index)
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        positive = self.positive_sampling(edge_index)
        if negative is None:
            negative = self.negative_sampling(edge_index, x.size(0), batch)
        if negative.dtype != edge_index.dtype:
            rule = "negative edges are pairs of nodes, as edges are"
            raise RefusedType(rule, edge_index.dtype, negative.dtype)
        values = self.lin(x).view(-1, self.heads, self.out_channels)
        scale = self.out_channels**-0.5 if self.attention_type == "SD" else 1.0
        products = _products(values, scale, torch.cat([positive, negative], dim=1))
        is_edge = products.new_zeros(products.size(0))
        is_edge[: positive.size(1)] = 1.0
        self.__dict__.update(att_x=products, att_y=is_edge)  # no option: the recipe stays


def _products(x: Tensor, scale: float, pairs: Tensor) -> Tensor:
    """scale ⟨x_m, x_n⟩ of each head, (E, H), for x (N, H, C) and pairs of nodes (2, E)."""
    pattern = Pattern.build(pairs, size=(x.size(0), x.size(0)))
    found = sddmm(pattern.by_target, x * scale, x)
    return torch.zeros_like(found).index_copy(0, pattern.order.long(), found)


class AGNNConv(DropIn, theirs.AGNNConv):
    """Y = Aᵀ X, A[m, n] = softmax_m β cos(X_m, X_n)."""

    least = 2**18

    def recipe(self) -> Recipe:
        conv = agnn_conv(self.requires_grad, self.add_self_loops, flow=self.flow)
        return conv, {"functions.0.beta": same("beta")}

    def convolve(self, conv: Any, x: Tensor, edge_index: Adj) -> Tensor:
        conv.theta.in_channels = conv.theta.out_channels = x.size(-1)  # Θ is the identity
        if self.add_self_loops and torch.compiler.is_compiling():
            out = of_nodes(conv(*looped(self, x, edge_index)[:2]), x)
        else:
            out = conv(x, edge_index)
        return out.to(torch.promote_types(out.dtype, self.beta.dtype))
