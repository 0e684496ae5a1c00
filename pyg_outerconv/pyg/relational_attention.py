"""Attention over the edges of several relations: RGATConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, Size

from ..attention.edge_context import check_attr, of_given
from ..basis.pattern import Pattern
from ..families import Relation
from ..kernels import sddmm, segment_softmax, spmm
from ..theta import as_theta
from .layer import DropIn, Recipe
from .relational import form_of
from .tie import same


class RGATConv(DropIn, theirs.RGATConv):
    """Y = Σ_r Σ_h A_{r,h}ᵀ X Θ_{r,h}, A_{r,h} = softmax of scores of ⟨Q_h, X_n Θ_r⟩ and
    ⟨K_h, X_m Θ_r⟩.

    Scores are leaky ReLUs of sums, or products; the softmax is over the edges of a target, or of a
    target and a relation. All is made of the values X Θ_r of nodes: no edge has a Θ or a vector.
    :meth:`recipe` is the convolution without attention; its Θ and X Θ_r are those of the layer.
    """

    trick = "The values of edges come from scores under each relation."

    least = 2**13

    def outside(self) -> list[str]:
        edge = "" if self.lin_edge is None else ", and of edges by lin_edge and e"
        found = [f"shares of the edges of all relations, by q and k of both ends{edge}"]
        found.append("w, or l1, b1, l2 and b2, of the number of edges, where mod asks for it")
        return found if self.bias is None else [*found, "bias"]

    def recipe(self) -> Recipe:
        is_mixed = self.num_bases is not None
        return self.convolution(
            Relation(self.num_relations, None),
            same("basis" if is_mixed else "weight"),
            bias=None,
            form=form_of(self),
            channels=self.in_channels,
            out_channels=self.heads * self.out_channels,
            beside={"theta.comp": same("att")} if is_mixed else None,
        )

    def skipped(self) -> list[Module]:
        return [*super().skipped(), *([] if self.lin_edge is None else [self.lin_edge])]

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        if beside.get("edge_attr") is not None and self.lin_edge is None:
            yield "edge attributes that no linear map reads"
        if beside.get("edge_type") is None:
            yield "no edge types"

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        edge_index: Adj,
        edge_type: OptTensor = None,
        edge_attr: OptTensor = None,
        size: Size = None,
        **unread: Any,
    ) -> Tensor:
        pattern = conv.basis(x, edge_index, edge_type=edge_type, size=size).edges().pattern
        values = as_theta(conv.theta.parameter(x)).transform(x).flatten(0, 1)  # (M·R, H·C)
        shares = self._shares(pattern, self._scores(pattern, values, edge_attr))
        received = self._received(pattern, shares, values)
        return self._collected(self._preserved(pattern, received, values))

    def _scores(self, pattern: Pattern, values: Tensor, edge_attr: OptTensor) -> Tensor:
        """The scores (E, H·D) of the edges, from numbers of nodes under each relation."""
        query, key = values @ self.q, values @ self.k
        of_edge = None
        if edge_attr is not None:
            folded = self.lin_edge.weight.t() @ self.e
            of_edge = of_given(pattern, check_attr(edge_attr)) @ folded
        if self.attention_mode == "additive-self-attention":
            found = sddmm(pattern.by_both, query, key, op="add")
            return F.leaky_relu(found if of_edge is None else found + of_edge, self.negative_slope)
        found = sddmm(pattern.by_both, query.unsqueeze(-1), key.unsqueeze(-1))
        return found if of_edge is None else found * of_edge

    def _shares(self, pattern: Pattern, scores: Tensor) -> Tensor:
        """The values (E, H·D) of A: the softmax of a target's scores, perhaps of one relation."""
        within = self.attention_mechanism == "within-relation"
        shares = segment_softmax(pattern.by_both if within else pattern.by_target, scores)
        if self.mod == "f-additive":
            shares = torch.where(shares > 0, shares + 1, shares)
        elif self.mod not in ("additive", "scaled", "f-scaled"):
            shares = F.dropout(shares, self.dropout, self.training)
        return shares

    def _received(self, pattern: Pattern, shares: Tensor, values: Tensor) -> Tensor:
        """Σ_r A_{r,h}ᵀ X Θ_{r,h} for every head and dimension of scores: (N, H, D, C)."""
        of_heads = values.unflatten(-1, (self.heads, self.out_channels))
        of_dims = shares.to(values.dtype).unflatten(-1, (self.heads, self.dim)).unbind(-1)
        return torch.stack([spmm(pattern.by_target, one, of_heads) for one in of_dims], dim=2)

    def _preserved(self, pattern: Pattern, received: Tensor, values: Tensor) -> Tensor:
        """The received values with the number of edges that reach a target brought in."""
        if self.mod == "additive":
            ones = values.new_ones(pattern.num_edges)
            plain = spmm(pattern.by_target, ones, values).unflatten(-1, (self.heads, 1, -1))
            return received + self.w * plain
        if self.mod in ("scaled", "f-scaled"):
            degree = pattern.target_ptr.diff().to(values.dtype).view(-1, 1)
            if self.mod == "scaled":
                degree = (degree @ self.l1 + self.b1).relu() @ self.l2 + self.b2
            return received * degree.view(degree.size(0), 1, 1, -1)
        return received

    def _collected(self, received: Tensor) -> Tensor:
        """The heads side by side, or their mean, and the bias."""
        out = received.flatten(1) if self.concat else received.mean(1).flatten(1)
        return out if self.bias is None else out + self.bias
