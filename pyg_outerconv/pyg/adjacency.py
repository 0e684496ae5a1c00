"""Layers over the adjacency matrix: GraphConv, SAGEConv, SimpleConv, GINConv, GatedGraphConv."""

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
from .layer import DropIn, Recipe, as_linear, both
from .matrices import matrix_basis
from .reductions import SEVERAL, is_one, propagations, reduced
from .tie import linear


class GraphConv(DropIn, theirs.GraphConv):
    """Y = Aᵀ X Θ_rel + X Θ_root, with A reduced by sum, mean, maximum or minimum."""

    reductions = SEVERAL
    takes_pairs = True
    takes_matrices = True
    least = 300_000

    def outside(self) -> list[str]:
        return [] if is_one(self) else ["lin_rel of the reductions together", "lin_root(X)"]

    def recipe(self) -> Recipe:
        if not is_one(self):
            return propagations(self), {}
        ends = linear("lin_rel"), linear("lin_root")
        return self.convolution(Relation(1, None), *ends, bias="lin_rel.bias")

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
        target = both(x)[1]
        return out if target is None else out + self.lin_root(target)


class SAGEConv(DropIn, theirs.SAGEConv):
    """Y = (A D⁻¹)ᵀ X Θ_l + X Θ_r, D the in-degrees; or a sum, maximum or minimum over A."""

    reductions = SEVERAL
    takes_pairs = True
    least = 300_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if self._projects() and self.flow != "source_to_target":
            reasons.append("a projection of features, which PyG does not send with this flow")
        return reasons

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
        root = linear("lin_r") if self.root_weight else None
        return self.convolution(Relation(1, None), linear("lin_l"), root, bias="lin_l.bias")

    def convolve(
        self, conv: Any, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        if self.project and self._projects():
            source, target = both(x)
            x = (self.lin(source).relu(), target)
        if is_one(self):
            out = as_linear(conv(x, edge_index, size=size))
        else:
            out, target = self.lin_l(reduced(self, conv, x, edge_index, size=size)), both(x)[1]
            if self.root_weight and target is not None:
                out = out + self.lin_r(target)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


class SimpleConv(DropIn, theirs.SimpleConv):
    """Y = Aᵀ X, with A reduced by sum, mean, maximum or minimum, and without parameters.

    ``combine_root`` adds X (``'sum'``), puts it beside Y (``'cat'``) or adds I to A
    (``'self_loop'``).
    """

    reductions = SEVERAL
    takes_pairs = True
    least = 300_000

    def outside(self) -> list[str]:
        return [] if self.combine_root is None else [f"combine_root={self.combine_root!r}"]

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
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
        target = both(x)[1]
        if self.combine_root == "self_loop":
            count = target.size(-2)
            edge_index, edge_weight = add_self_loops(edge_index, edge_weight, num_nodes=count)
        out = reduced(self, conv, x, edge_index, edge_weight, size)
        if target is not None and self.combine_root == "sum":
            return out + target
        if target is not None and self.combine_root == "cat":
            return torch.cat([target, out], dim=-1)
        return out


class GINConv(DropIn, theirs.GINConv):
    """Y = h((A + (1 + ε) I)ᵀ X), with a network h and a number ε."""

    reductions = SEVERAL
    takes_pairs = True
    least = 1_000_000

    def outside(self) -> list[str]:
        parameter_names = ", ".join(name for name, _ in self.named_parameters())
        return [f"(1 + ε) X of the targets, and h of both together ({parameter_names})"]

    def recipe(self) -> Recipe:
        return propagations(self), {}

    def convolve(
        self, conv: Any, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        out, target = reduced(self, conv, x, edge_index, size=size), both(x)[1]
        return self.nn(out if target is None else out + (1 + self.eps) * target)


class GatedGraphConv(DropIn, theirs.GatedGraphConv):
    """X ← GRU(Aᵀ X W_t, X) for T steps, X being padded with zeros first."""

    trick = "A convolution for each step, torch's GRU between them."

    reductions = SEVERAL
    takes_batches = False
    least = 500_000

    def outside(self) -> list[str]:
        parameter_names = ", ".join(name for name, _ in self.rnn.named_parameters(prefix="rnn"))
        return [f"X weight[t] before, and the GRU after each step ({parameter_names})"]

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
        if x.size(1) > self.out_channels:
            yield "features with more channels than the output"

    def recipe(self) -> Recipe:
        return propagations(self), {}

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        x = F.pad(x, (0, self.out_channels - x.size(1)))
        for weight in self.weight.unbind()[: self.num_layers]:
            x = self.rnn(reduced(self, conv, x @ weight, edge_index, edge_weight), x)
        return x
