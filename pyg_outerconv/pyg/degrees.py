"""Layers over the adjacency matrix and its degrees as a diagonal: ClusterGCNConv, LEConv."""

from __future__ import annotations

from typing import Any, Union

import torch
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, PairTensor

from ..basis import EdgeBasis
from ..families import GCN, Relation
from .layer import DropIn, Recipe, as_linear, both
from .tie import linear


class ClusterGCNConv(DropIn, theirs.ClusterGCNConv):
    """Y = (Â + λ diag(Â))ᵀ X Θ_out + X Θ_root, with Â = (A + I) D⁻¹, D the in-degrees of A + I.

    Existing self-loops are replaced.
    """

    least = 128_000

    def lacks(self) -> list[str]:
        found = super().lacks()
        if not self.add_self_loops:
            found.append("add_self_loops=False, with which λ needs one self-loop at each node")
        if self.flow != "source_to_target":
            found.append("flow='target_to_source', with which degrees are of the other end")
        return found

    def outside(self) -> list[str]:
        return [f"λ diag(A_0), with λ = {self.diag_lambda}"] if self.diag_lambda else []

    def recipe(self) -> Recipe:
        ends = linear("lin_out"), linear("lin_root")
        return self.convolution(GCN("target", as_pyg=True), *ends, bias="lin_out.bias")

    def convolve(self, conv: Any, x: Tensor, edge_index: Adj) -> Tensor:
        if not self.diag_lambda:
            return as_linear(conv(x, edge_index))
        return as_linear(conv(x, self._enhanced(conv.basis(x, edge_index).edges(), x.dtype)))

    def _enhanced(self, edges: EdgeBasis, dtype: torch.dtype) -> EdgeBasis:
        """Â + λ diag(Â)."""
        source, target = edges.index
        value = edges.values(dtype)
        return edges.with_values(
            torch.where(source == target, (1 + self.diag_lambda) * value, value)
        )


class LEConv(DropIn, theirs.LEConv):
    """Y = Aᵀ (X Θ_1 + b_1) − D X Θ_2 + X Θ_3 + b_3, D = diag(Aᵀ 1) the in-degrees."""

    trick = "The degree of a node is a label of its own."

    takes_pairs = True
    least = 128_000

    def outside(self) -> list[str]:
        if self.lin1.bias is None:
            return ["−D X Θ_2, with Θ_2 = lin2.weight.T"]
        return ["D (b_1 − X Θ_2), with b_1 = lin1.bias and Θ_2 = lin2.weight.T"]

    def recipe(self) -> Recipe:
        ends = linear("lin1"), linear("lin3")
        return self.convolution(Relation(1, None), *ends, bias="lin3.bias")

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, PairTensor],
        edge_index: Adj,
        edge_weight: OptTensor = None,
    ) -> Tensor:
        source, target = both(x)
        basis = conv.basis(x, edge_index, edge_weight)
        degree = basis.propagate(source.new_ones(source.size(-2), 1)).squeeze(1)
        minus = self.lin2(target)
        if self.lin1.bias is not None:
            minus = minus - self.lin1.bias
        out = conv(x, basis) - degree * minus
        is_wide = edge_weight is not None and edge_weight.dtype in (torch.float32, torch.float64)
        return out if is_wide else as_linear(out)
