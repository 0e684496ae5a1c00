"""Layers over the adjacency matrix A and its mean A D⁻¹: GraphConv, SAGEConv, SimpleConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size
from torch_geometric.utils import add_self_loops

from ..families import Relation
from ..nn import OuterConv
from .layer import DropIn, Recipe, as_linear
from .matrices import matrix_basis
from .reductions import check_reductions, is_one, propagations, reduced, reduction
from .tie import linear, same


class GraphConv(DropIn, theirs.GraphConv):
    r"""Y = Aᵀ X Θ_rel + X Θ_root, with A reduced by sum, mean, maximum or minimum.

    From the `"Weisfeiler and Leman Go Neural" <https://arxiv.org/abs/1810.02244>`_ paper.
    """

    takes_pairs = True
    takes_matrices = True
    least = 300_000

    def lacks(self) -> list[str]:
        return check_reductions(self)

    def outside(self) -> list[str]:
        return [] if is_one(self) else ["lin_rel of the reductions together", "lin_root(X)"]

    def recipe(self) -> Recipe:
        if not is_one(self):
            return propagations(self), {}
        bias = self.lin_rel.bias is not None
        conv = OuterConv(
            (self.lin_rel.in_channels, self.lin_root.in_channels),
            self.out_channels,
            Relation(1, None),
            bias=bias,
            aggr=reduction(self),
            root_weight=True,
            flow=self.flow,
        )
        sources = {"theta.weight": linear("lin_rel"), "root.weight": linear("lin_root")}
        return conv, {**sources, "bias": same("lin_rel.bias")} if bias else sources

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, OptPairTensor],
        edge_index: Adj,
        edge_weight: OptTensor = None,
        size: Size = None,
    ) -> Tensor:
        if edge_index.layout is not torch.strided:
            edge_index = matrix_basis(edge_index)
        if is_one(self):
            return as_linear(conv(x, edge_index, edge_weight, size=size))
        out = self.lin_rel(reduced(self, conv, x, edge_index, edge_weight, size))
        target = x[1] if isinstance(x, tuple | list) else x
        return out if target is None else out + self.lin_root(target)


class SAGEConv(DropIn, theirs.SAGEConv):
    r"""Y = (A D⁻¹)ᵀ X Θ_l + X Θ_r, D the in-degrees; or a sum, maximum or minimum over A.

    From the `"Inductive Representation Learning on Large Graphs"
    <https://arxiv.org/abs/1706.02216>`_ paper.
    """

    takes_pairs = True
    least = 300_000

    def lacks(self) -> list[str]:
        found = check_reductions(self)
        if self._projects() and self.flow != "source_to_target":
            found.append("a projection of features, which PyG does not send with this flow")
        return found

    def _projects(self) -> bool:
        """Whether features of sources have a linear map before the convolution."""
        return self.project and hasattr(self, "lin")

    def outside(self) -> list[str]:
        before = ["X = relu(lin(X)) of the sources before it"] if self._projects() else []
        several = [] if is_one(self) else ["lin_l of the reductions together", "lin_r(X)"]
        after = ["rows divided by their norms after it"] if self.normalize else []
        return before + several + after

    def recipe(self) -> Recipe:
        if not is_one(self):
            return propagations(self), {}
        bias, aggr = self.lin_l.bias is not None, reduction(self)
        root = self.lin_r.in_channels if self.root_weight else self.lin_l.in_channels
        conv = OuterConv(
            (self.lin_l.in_channels, root),
            self.out_channels,
            Relation(1, "mean" if aggr == "mean" else None),
            bias=bias,
            aggr="sum" if aggr == "mean" else aggr,
            root_weight=self.root_weight,
            flow=self.flow,
        )
        sources = {"theta.weight": linear("lin_l")}
        if self.root_weight:
            sources["root.weight"] = linear("lin_r")
        return conv, {**sources, "bias": same("lin_l.bias")} if bias else sources

    def convolve(
        self, conv: Any, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        if self.project and self._projects():
            source, target = x if isinstance(x, tuple | list) else (x, x)
            x = (self.lin(source).relu(), target)
        if is_one(self):
            out = as_linear(conv(x, edge_index, size=size))
        else:
            out = self.lin_l(reduced(self, conv, x, edge_index, size=size))
            target = x[1] if isinstance(x, tuple | list) else x
            if self.root_weight and target is not None:
                out = out + self.lin_r(target)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


class SimpleConv(DropIn, theirs.SimpleConv):
    r"""Y = Aᵀ X, with A reduced by sum, mean, maximum or minimum, and without parameters.

    ``combine_root`` adds X (``'sum'``), puts it beside Y (``'cat'``) or adds I to A
    (``'self_loop'``).
    """

    takes_pairs = True
    least = 300_000

    def lacks(self) -> list[str]:
        return check_reductions(self)

    def outside(self) -> list[str]:
        return [] if self.combine_root is None else [f"combine_root={self.combine_root!r}"]

    def _of_inputs(
        self, x: Any, edge_index: Any, edge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, edge_weight)
        if isinstance(x, tuple | list) and self.combine_root == "self_loop":
            yield "self-loops between two sets of nodes"

    def recipe(self) -> Recipe:
        return propagations(self), {}

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, OptPairTensor],
        edge_index: Adj,
        edge_weight: OptTensor = None,
        size: Size = None,
    ) -> Tensor:
        is_pair = isinstance(x, tuple | list)
        if self.combine_root == "self_loop":
            edge_index, edge_weight = add_self_loops(edge_index, edge_weight, num_nodes=x.size(-2))
        out = reduced(self, conv, x, edge_index, edge_weight, size)
        target = x[1] if is_pair else x
        if target is not None and self.combine_root == "sum":
            return out + target
        if target is not None and self.combine_root == "cat":
            return torch.cat([target, out], dim=-1)
        return out
