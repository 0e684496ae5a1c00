"""HypergraphConv: from nodes to hyperedges and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric import nn as theirs
from torch_geometric.experimental import disable_dynamic_shapes
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from ..basis import Basis, EdgeBasis, Pattern
from ..basis.multi_head_edges import MultiHeadEdges
from ..families import Compose, Relation
from ..graph.checks import check_index
from ..memo import Memo
from .layer import DropIn, Recipe, as_weighted
from .tie import linear

_incidences = Memo()


class HypergraphConv(DropIn, theirs.HypergraphConv):
    """Y = (H B⁻¹ Hᵀ D⁻¹)ᵀ X Θ, with H[n, e] = 1 for the nodes n of hyperedge e.

    B counts the nodes of hyperedges, and D adds up the weights of the hyperedges of nodes. The
    product is a composition, contracted through the hyperedges. With attention H_h has the shares
    of head h in the places of ones, and each head its own Θ_h.
    """

    edges_are = "hyperedge_index"
    trick = "Two convolutions, to the hyperedges and back."

    least = 150_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        width = self.out_channels if self.bias is None else self.bias.numel()
        if not self.use_attention and width != self.out_channels:
            reasons.append("a bias for several heads without attention")
        if self.flow != "source_to_target":
            reasons.append(f"flow={self.flow}")
        return reasons

    def outside(self) -> list[str]:
        descriptions = ["H, B and D are of the list of nodes and hyperedges, not of a graph"]
        if self.use_attention:
            text = "Y = (H_h B⁻¹ H_hᵀ D⁻¹)ᵀ X Θ_h for the heads, Θ_h of lin, scores by att"
            descriptions += [text] if self.bias is None else [text, "bias"]
        return descriptions

    def recipe(self) -> Recipe:
        if self.use_attention:
            return ModuleList(), {}  # both steps share their values, which `_attend` computes
        through = Compose(Relation(1, "mean"), Relation(1, "mean"))
        return self.convolution(through, linear("lin"))

    def _of_inputs(  # type: ignore[override]
        self, x: Any, hyperedge_index: Any, hyperedge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, hyperedge_index, hyperedge_weight)
        if self.use_attention and beside.get("hyperedge_attr") is None:
            yield "no attributes of hyperedges"
        if hyperedge_weight is not None and hyperedge_weight.dtype != x.dtype:
            yield f"weights of type {hyperedge_weight.dtype} for features of {x.dtype}"

    @disable_dynamic_shapes(required_args=["num_edges"])  # type: ignore[untyped-decorator]
    def convolve(
        self,
        conv: Any,
        x: Tensor,
        hyperedge_index: Tensor,
        hyperedge_weight: OptTensor = None,
        hyperedge_attr: OptTensor = None,
        num_edges: Optional[int] = None,
    ) -> Tensor:
        to_edges, to_nodes = _incidence(hyperedge_index, x.size(0), num_edges)
        if self.use_attention:
            assert hyperedge_attr is not None  # it is read
            return self._attend(
                x, hyperedge_index, hyperedge_weight, hyperedge_attr, to_edges, to_nodes
            )
        composed = _composed(to_edges, to_nodes, hyperedge_index, hyperedge_weight, x.dtype)
        return as_weighted(conv(x, composed), x)

    def _attend(
        self,
        x: Tensor,
        hyperedge_index: Tensor,
        hyperedge_weight: OptTensor,
        hyperedge_attr: Tensor,
        to_edges: Pattern,
        to_nodes: Pattern,
    ) -> Tensor:
        # torch's gradients of sums over indices of 32 bits that are expanded are wrong.
        shape, (node, edge) = (-1, self.heads, self.out_channels), hyperedge_index.long()
        values, of_edges = self.lin(x).view(shape), self.lin(hyperedge_attr).view(shape)
        at_node, at_edge = self.att.split(self.out_channels, dim=-1)
        score = (values * at_node).sum(-1)[node] + (of_edges * at_edge).sum(-1)[edge]
        score = F.leaky_relu(score, self.negative_slope)
        count = to_edges.size[1]
        if self.attention_mode == "node":
            share = softmax(score, edge, num_nodes=count)
        else:
            share = softmax(score, node, num_nodes=x.size(0))
        share = F.dropout(share, p=self.dropout, training=self.training)
        for pattern, index, weight in (
            (to_edges, edge, None),
            (to_nodes, node, None if hyperedge_weight is None else hyperedge_weight[edge]),
        ):
            divided = share * _inverse_degrees(index, pattern.size[1], weight, x.dtype)[:, None]
            values = MultiHeadEdges(pattern, divided[pattern.order]).times(values)
        out = values.flatten(1) if self.concat else values.mean(1)
        return out if self.bias is None else out + self.bias


def _incidence(index: Tensor, num_nodes: int, num_edges: Optional[int]) -> tuple[Pattern, Pattern]:
    """The patterns from nodes to hyperedges and back, kept as long as the list of incidences."""

    def make() -> tuple[Pattern, Pattern]:
        check_index(index)
        count = num_edges
        if count is None:
            count = int(index[1].max()) + 1 if index.numel() else 0
        there = Pattern.build(index, size=(num_nodes, count))
        return there, Pattern.build(index.flip(0), size=(count, num_nodes))

    return _incidences.get((num_nodes, num_edges), make, index)  # type: ignore[no-any-return]


def _composed(
    to_edges: Pattern,
    to_nodes: Pattern,
    index: Tensor,
    weight: OptTensor,
    dtype: torch.dtype,
) -> Basis:
    """H B⁻¹ Hᵀ D⁻¹ as a composition; without weights kept as long as the list of incidences."""

    def first() -> EdgeBasis:
        return EdgeBasis(to_edges).mean(dtype)

    if weight is None:
        basis: Basis = _incidences.get(
            (to_edges.size, dtype),
            lambda: first().compose(EdgeBasis(to_nodes).mean(dtype)),
            index,
        )
        return basis
    value = _inverse_degrees(index[0], to_nodes.size[1], weight[index[1]], dtype)
    return first().compose(to_nodes.with_values(to_nodes.sort_values(value)))


def _inverse_degrees(index: Tensor, count: int, weight: OptTensor, dtype: torch.dtype) -> Tensor:
    """(E,) 1 over the sum of the weights at the node of each incidence; zero where that is zero."""
    weight = torch.ones_like(index, dtype=dtype) if weight is None else weight
    degree = weight.new_zeros(count).index_add(0, index, weight)
    return torch.where(degree == 0, 0.0, degree.reciprocal()).index_select(0, index)
