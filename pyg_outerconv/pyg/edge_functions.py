"""Layers whose matrices are functions of edge attributes: GMMConv, NNConv, PDNConv."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Union

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from ..families import GCN, Kernel, Relation
from ..nn import OuterConv
from ..nn.edge_functions import GaussianMixture
from .layer import DropIn, Recipe, as_weighted, is_finite
from .reductions import check_reduction, reduction
from .tie import Source, linear, same


class GMMConv(DropIn, theirs.GMMConv):
    r"""Y = Σ_k A_kᵀ X Θ_k + X Θ_root, A_k[m, n] = exp(−½ (e_mn − μ_k)ᵀ Σ_k⁻¹ (e_mn − μ_k)) / d_n.

    Θ_k are the column blocks of ``g``, and d the in-degrees (1 with ``aggr='add'``). From the
    `"Geometric Deep Learning on Graphs and Manifolds using Mixture Model CNNs"
    <https://arxiv.org/abs/1611.08402>`_ paper, section 3.

    Unlike PyG's, it takes ``root_weight=False``.
    """

    trick = "Gaussians of edge attributes are the values of K labels."

    takes_pairs = True
    least = 150_000

    def lacks(self) -> list[str]:
        found = check_reduction(self, "sum", "mean")
        if self.separate_gaussians:
            found.append("separate_gaussians=True has a matrix for each pair of channels")
        return found

    def recipe(self) -> Recipe:
        bias = self.bias is not None
        conv = OuterConv(
            (self.g.size(0), self.root.in_channels if self.root_weight else self.g.size(0)),
            self.out_channels,
            Kernel(GaussianMixture(self.dim, self.kernel_size)),
            bias=bias,
            aggr=reduction(self),
            root_weight=self.root_weight,
            flow=self.flow,
        )
        sources = {
            "theta.weight": Source("column blocks of g", _column_blocks),
            "functions.0.mu": same("mu"),
            "functions.0.sigma": same("sigma"),
        }
        if self.root_weight:
            sources["root.weight"] = linear("root")
        return conv, {**sources, "bias": same("bias")} if bias else sources

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index)
        edge_attr, features = beside.get("edge_attr"), x if isinstance(x, Tensor) else x[0]
        if edge_attr is None or edge_attr.dtype != features.dtype:
            yield "edge attributes of another type than the features"
        elif not is_finite(edge_attr):
            yield "edge attributes that are not finite"

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, OptPairTensor],
        edge_index: Adj,
        edge_attr: OptTensor = None,
        size: Size = None,
    ) -> Tensor:
        return as_weighted(conv(x, edge_index, edge_attr=edge_attr, size=size), self, "mu")


def _column_blocks(layer: Any) -> Tensor:
    """Θ (K, P, Q) from ``g`` (P, K·Q)."""
    return layer.g.unflatten(1, (layer.kernel_size, -1)).transpose(0, 1)


class NNConv(DropIn, theirs.NNConv):
    r"""Y = Σ_k A_kᵀ X Θ_k + X Θ_root, with A_k[m, n] = h_k(e_mn).

    The network of edge attributes is nn(e) = W h(e) + b. Column k of W, as a matrix P × Q, is Θ_k,
    and b the Θ of one more label of value 1. So no matrix P × Q is computed for an edge. From the
    `"Neural Message Passing for Quantum Chemistry" <https://arxiv.org/abs/1704.01212>`_ paper, and
    `"Dynamic Edge-Conditioned Filters in Convolutional Neural Networks on Graphs"
    <https://arxiv.org/abs/1704.02901>`_, equation 1.
    """

    trick = "The last linear map of the network is Θ, its inputs are the values of edges."

    takes_pairs = True
    least = 20_000

    def lacks(self) -> list[str]:
        found = check_reduction(self, "sum", "mean")
        if last_linear(self.nn) is None:
            found.append("nn is neither a linear map nor a torch.nn.Sequential that ends with one")
        return found

    def outside(self) -> list[str]:
        name = last_linear(self.nn)
        before = [f"nn.{part}" for part in self.nn._modules if part != name] if name else []
        return [f"h, the values of A: {', '.join(before)}"] if before else []

    def recipe(self) -> Recipe:
        name = last_linear(self.nn)
        assert name is not None  # else it lacks a linear map
        path = f"nn.{name}" if name else "nn"
        last: Any = self.nn.get_submodule(name)
        bias, constant = self.bias is not None, last.bias is not None
        targets = self.lin.in_channels if self.root_weight else self.in_channels_l
        conv = OuterConv(
            (self.in_channels_l, targets),
            self.out_channels,
            Kernel(_before_last(self, constant), last.weight.size(1) + constant),
            bias=bias,
            aggr=reduction(self),
            root_weight=self.root_weight,
            flow=self.flow,
        )
        text = f"columns of {path}.weight" + constant * f", {path}.bias"
        sources = {"theta.weight": Source(text, _columns(path), (path,))}
        if self.root_weight:
            sources["root.weight"] = linear("lin")
        return conv, {**sources, "bias": same("bias")} if bias else sources

    def skipped(self) -> list[Module]:
        return [*super().skipped(), self.nn]

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index)
        edge_attr = beside.get("edge_attr")
        if edge_attr is not None and not is_finite(edge_attr):
            yield "edge attributes that are not finite"

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, OptPairTensor],
        edge_index: Adj,
        edge_attr: OptTensor = None,
        size: Size = None,
    ) -> Tensor:
        return conv(x, edge_index, edge_attr=edge_attr, size=size)


_LINEAR = (torch.nn.Linear, theirs.Linear)


def last_linear(nn: Module) -> str | None:
    """The name of the linear map that a network ends with; '' if it is the network."""
    if type(nn) in _LINEAR:
        return ""
    if type(nn) is torch.nn.Sequential and len(nn) and type(nn[-1]) in _LINEAR:
        return list(nn._modules)[-1]
    return None


def _before_last(layer: Any, constant: bool) -> Callable[[Tensor], Tensor]:
    """The network of a layer without its last linear map, and a constant 1 for the bias."""

    def values(edge_attr: Tensor) -> Tensor:
        nn = layer.nn
        for part in list(nn)[:-1] if isinstance(nn, torch.nn.Sequential) else ():
            edge_attr = part(edge_attr)
        if not constant:
            return edge_attr
        return torch.cat([edge_attr, edge_attr.new_ones(edge_attr.size(0), 1)], dim=1)

    return values


def _columns(path: str) -> Callable[[Any], Tensor]:
    """Θ (K, P, Q) from the weight (P·Q, K) and the bias (P·Q) of a linear map."""

    def of(layer: Any) -> Tensor:
        last = layer.get_submodule(path)
        rows = last.weight.t()
        if last.bias is not None:
            rows = torch.cat([rows, last.bias.unsqueeze(0)])
        return rows.reshape(rows.size(0), layer.in_channels_l, layer.out_channels)

    return of


class PDNConv(DropIn, theirs.PDNConv):
    r"""Y = Aᵀ X Θ, A = D^-1/2 (W + I) D^-1/2, with weights W_mn = σ(MLP(e_mn)) of the edges.

    From the `"Pathfinder Discovery Networks for Neural Message Passing"
    <https://arxiv.org/abs/2010.12878>`_ paper.
    """

    transforms_first = True
    least = 100_000
    linear_map = torch.nn.Linear

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum", "mean")

    def outside(self) -> list[str]:
        parts = ", ".join(f"mlp.{name}" for name, _ in self.mlp.named_parameters())
        return [f"the weights W_mn = σ(MLP(e_mn)) of the edges, of {parts}"]

    def recipe(self) -> Recipe:
        bias = self.bias is not None
        norm = GCN("sym", self.add_self_loops, as_pyg=True) if self.normalize else Relation(1, None)
        channels = self.lin.in_features, self.out_channels
        conv = OuterConv(*channels, norm, bias=bias, aggr=reduction(self), flow=self.flow)
        sources = {"theta.weight": linear("lin")}
        return conv, {**sources, "bias": same("bias")} if bias else sources

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_attr: OptTensor = None
    ) -> Tensor:
        weight = None if edge_attr is None else self.mlp(edge_attr).squeeze(-1)
        if weight is not None and not is_finite(weight):
            return self.theirs.forward(self, x, edge_index, edge_attr)  # type: ignore[no-any-return]
        out = conv(x, edge_index, weight)
        return as_weighted(out, x) if self.normalize and weight is None else out

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index)
        edge_attr = beside.get("edge_attr")
        if edge_attr is None and not self.normalize:
            yield "no edge attributes"
        elif edge_attr is not None and not is_finite(edge_attr):
            yield "edge attributes that are not finite"
