"""Layers that read the degrees of nodes: ClusterGCNConv, LEConv, MFConv."""

from __future__ import annotations

from typing import Any, NamedTuple, Union

import torch
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, PairTensor, Size

from ..basis import EdgeBasis
from ..families import GCN, Relation
from ..kernels.edge_lists import counting_sort
from ..kernels.grouped import known_groups
from ..memo import Memo
from ..nn import OuterConv
from .layer import DropIn, Recipe, as_linear, both
from .reductions import EACH, Propagation, reduction
from .tie import linear


class ClusterGCNConv(DropIn, theirs.ClusterGCNConv):
    """Y = (Â + λ diag(Â))ᵀ X Θ_out + X Θ_root, with Â = (A + I) D⁻¹, D the in-degrees of A + I.

    Existing self-loops are replaced.
    """

    least = 128_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if not self.add_self_loops:
            reasons.append("add_self_loops=False, with which λ needs one self-loop at each node")
        if self.flow != "source_to_target":
            reasons.append("flow='target_to_source', with which degrees are of the other end")
        return reasons

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


_kept = Memo()


class MFConv(DropIn, theirs.MFConv):
    """Y = Σ_k A_kᵀ X Θ_k + S_k (X Θ'_k + b_k), A_k = A S_k, S_k[n, n] = 1 where n has degree k.

    The first step is A without a parameter. The second and third are the S_k, an edge from each
    node to itself under the label of its degree, whose products are those of groups of nodes.
    Degrees above ``max_degree`` count as that.
    """

    trick = "The labels of edges are the degrees of their targets."

    reductions = EACH
    takes_pairs = True
    takes_batches = False
    least = 200_000

    def outside(self) -> list[str]:
        if self.lins_l[0].bias is None:
            return []
        return [
            f"lins_l.{k}.bias at nodes of degree {k}, where lins_l.{k} and lins_r.{k} are Θ"
            for k in range(self.max_degree + 1)
        ]

    def recipe(self) -> Recipe:
        count = self.max_degree + 1
        steps: list[Any] = [Propagation(Relation(1, None), reduction(self), self.flow)]
        sources = {}
        for step, lins in enumerate(("lins_l", "lins_r"), 1):
            width = getattr(self, lins)[0].in_channels
            by_degree = Relation(count, None)
            steps.append(OuterConv(width, self.out_channels, by_degree, bias=False))
            sources[f"{step}.theta.weight"] = linear(*[f"{lins}.{k}" for k in range(count)])
        return ModuleList(steps), sources

    def convolve(
        self, steps: Any, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        propagate, left, right = steps
        rows, theta = propagate(x, edge_index, size=size), left.theta()
        target = both(x)[1]
        if target is not None:
            rows = torch.cat([rows, target], dim=-1)
            theta = torch.cat([theta, right.theta()], dim=2)
        degrees = _degrees(edge_index, rows.size(0), self.max_degree, self.flow)
        out = known_groups(
            rows, degrees.ptr, theta[:, 0], degrees.nodes, degrees.nodes, rows.size(0)
        )
        if self.lins_l[0].bias is not None:
            bias = torch.stack([lin.bias for lin in self.lins_l])
            out = out + bias.index_select(0, degrees.degree)
        return out.to(rows.dtype)


class Degrees(NamedTuple):
    """Degrees, not above a largest one.

    Attributes:
        degree: (N,) of each target.
        nodes: (N,) the targets, by their degree.
        ptr: (K + 1,) where the targets of each degree begin.
    """

    degree: Tensor
    nodes: Tensor
    ptr: Tensor


def _degrees(edge_index: Tensor, count: int, most: int, flow: str) -> Degrees:
    """The degrees of targets, kept as long as the edges."""

    def make() -> Degrees:
        target = edge_index[1 if flow == "source_to_target" else 0]
        degree = torch.bincount(target, minlength=count).clamp_(max=most)
        ptr, nodes = counting_sort(degree, most + 1)
        return Degrees(degree, nodes, ptr)

    return _kept.get((count, most, flow), make, edge_index)  # type: ignore[no-any-return]
