"""Layers over GCN's normalised adjacency matrix: GCNConv, LGConv, GCN2Conv, ARMAConv, FAConv."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric import nn as theirs
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import Adj, OptTensor

from ..basis import Basis, EdgeBasis
from ..families import GCN, Family, Relation
from ..graph import Graph
from ..nn import OuterConv
from .layer import DropIn, Recipe, as_weighted
from .matrices import matrix_basis
from .reductions import Propagation, reduction
from .tie import Source, linear


def normalised(layer: Any) -> Family:
    """The family of a layer with ``normalize``, ``add_self_loops`` and perhaps ``improved``."""
    if not getattr(layer, "normalize", True):
        return Relation(1, None)
    loops, improved = getattr(layer, "add_self_loops", False), getattr(layer, "improved", False)
    return GCN("sym", loops, improved, as_pyg=True)


def normalised_edges(
    layer: Any, x: Tensor, edge_index: Tensor, edge_weight: OptTensor
) -> tuple[Tensor, OptTensor]:
    """The edges after ``gcn_norm`` where a layer has a norm: those of its first call if cached."""
    if not layer.normalize:
        return edge_index, edge_weight
    if layer._cached_edge_index is not None:
        return layer._cached_edge_index  # type: ignore[no-any-return]
    loops = getattr(layer, "improved", False), layer.add_self_loops
    edges: tuple[Tensor, OptTensor]
    edges = gcn_norm(edge_index, edge_weight, x.size(-2), *loops, layer.flow, x.dtype)
    if layer.cached:
        layer._cached_edge_index = edges
    return edges


def kept_edges(
    layer: Any, conv: OuterConv, x: Tensor, edge_index: Tensor, edge_weight: OptTensor
) -> tuple[Tensor | Basis, OptTensor]:
    """The basis of the first call where a layer is ``cached``, else the edges of this call."""
    if not layer.cached or not layer.normalize:
        return edge_index, edge_weight
    edges, attributes = normalised_edges(layer, x, edge_index, edge_weight), vars(layer)
    if "_kept" not in attributes or attributes["_kept"][0] is not edges:
        family: Any = replace(conv.family, norm=None, add_self_loops=False)  # type: ignore[type-var]
        attributes["_kept"] = edges, family.basis_on(listed(layer, *edges, x.size(-2)))
    return attributes["_kept"][1], None


def listed(layer: Any, edge_index: Tensor, value: OptTensor, num_nodes: int) -> Graph:
    """The edges of a layer after its norm, whose values are not checked again."""
    edges = Graph.of(edge_index, (num_nodes, num_nodes), edge_weight=value)
    return edges.reversed() if layer.flow == "target_to_source" else edges


class GCNConv(DropIn, theirs.GCNConv):
    """Y = Aᵀ X Θ with A = D^-1/2 (W + I) D^-1/2, D the in-degrees of W + I."""

    reductions = ("sum", "mean")
    takes_matrices = True
    transforms_first = True
    least = 60_000

    def recipe(self) -> Recipe:
        return self.convolution(normalised(self), linear("lin"))

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        if self.cached and getattr(edge_index, "layout", None) is not torch.strided:
            yield "a sparse matrix whose norm is cached"

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if edge_index.layout is not torch.strided:
            loops = self.improved, self.add_self_loops
            if self.normalize:
                edge_index, _ = gcn_norm(edge_index, None, x.size(0), *loops, self.flow, x.dtype)
            return conv(x, matrix_basis(edge_index))
        edge_index, edge_weight = kept_edges(self, conv, x, edge_index, edge_weight)
        out = conv(x, edge_index, edge_weight)
        has_weights = self.normalize or edge_weight is not None
        return as_weighted(out, x) if has_weights else out


class LGConv(DropIn, theirs.LGConv):
    """Y = Aᵀ X with A = D^-1/2 W D^-1/2, D the in-degrees of W; A = W without ``normalize``."""

    reductions = ("sum", "mean")
    least = 256_000

    def recipe(self) -> Recipe:
        return Propagation(normalised(self), reduction(self), self.flow), {}


class GCN2Conv(DropIn, theirs.GCN2Conv):
    """Y = ((1 − α) Aᵀ X + α X₀) ((1 − β) I + β W), with A as in GCN.

    Without ``shared_weights`` α X₀ has a W of its own.
    """

    reductions = ("sum", "mean")
    least = 200_000

    def recipe(self) -> Recipe:
        return Propagation(normalised(self), reduction(self), self.flow), {}

    def outside(self) -> list[str]:
        own = "weight1" if self.weight2 is None else "weight2"
        return [f"α X_0 ((1 − β) I + β {own})", "the factor (1 − β) I + β weight1 of Y"]

    def convolve(
        self, conv: Any, x: Tensor, x_0: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        edge_index, edge_weight = kept_edges(self, conv, x, edge_index, edge_weight)
        far = conv(x, edge_index, edge_weight) * (1 - self.alpha)
        near = self.alpha * x_0[: x.size(0)]
        if self.weight2 is None:
            return self._mapped((far + near).to(far.dtype), self.weight1)  # PyG adds it in place
        return self._mapped(far, self.weight1) + self._mapped(near, self.weight2)

    def _mapped(self, x: Tensor, weight: Tensor) -> Tensor:
        """X ((1 − β) I + β W)."""
        return torch.addmm(x, x, weight, beta=1.0 - self.beta, alpha=self.beta)


class ARMAConv(DropIn, theirs.ARMAConv):
    """Y = mean_k X_k, X_k ← σ(Aᵀ X_k W_k + X V_k + b_k) in T layers, A as in LGConv.

    The K stacks are blocks of channels of one X: each layer is one convolution, with W
    block-diagonal after the first.
    """

    trick = "A convolution for each layer, torch's activation between them."

    reductions = ("sum", "mean")
    least = 20_000

    def recipe(self) -> Recipe:
        stacks, wide = self.num_stacks, self.num_stacks * self.out_channels
        options: dict[str, Any] = {"bias": False, "aggr": reduction(self), "flow": self.flow}
        family, blocks = GCN("sym", False, as_pyg=True), f"block-diagonal(num_blocks={stacks})"
        convs = [OuterConv(self.init_weight.size(1), wide, family, **options)]
        sources = {"0.theta.weight": Source("init_weight, side by side", _first)}
        for t in range(1, self.num_layers):
            convs.append(OuterConv(wide, wide, family, theta=blocks, **options))
            place = 0 if self.shared_weights else t - 1
            sources[f"{t}.theta.weight"] = _blocks(place)
        return ModuleList(convs), sources

    def outside(self) -> list[str]:
        return ["X root_weight, bias and σ of each step, and the mean over stacks"]

    def convolve(
        self, convs: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        stacks, out = self.num_stacks, x
        for t, conv in enumerate(convs):
            place = 0 if self.shared_weights else t
            root = F.dropout(x, p=self.dropout, training=self.training)
            far = as_weighted(conv(out, edge_index, edge_weight), x)
            out = far + root @ side_by_side(self.root_weight[place])
            if self.bias is not None:
                out = out + self.bias[place].flatten()
            if self.act is not None:
                out = self.act(out.unflatten(-1, (stacks, -1)).movedim(-2, -3))
                out = out.movedim(-3, -2).flatten(-2)
        return out.unflatten(-1, (stacks, -1)).mean(dim=-2)


def side_by_side(weight: Tensor) -> Tensor:
    """K matrices (K, P, Q) as one (P, K·Q)."""
    return weight.transpose(0, 1).flatten(1)


def _blocks(place: int) -> Source:
    """Θ (1, K, Q, Q) of a layer after the first."""
    return Source(f"weight[{place}]", lambda layer: layer.weight[place].unsqueeze(0))


def _first(layer: Any) -> Tensor:
    return side_by_side(layer.init_weight).unsqueeze(0)


class FAConv(DropIn, theirs.FAConv):
    """Y = Aᵀ X + ε X_0, A[m, n] = tanh(⟨a_l, X_m⟩ + ⟨a_r, X_n⟩) P[m, n], P as in GCN.

    :meth:`recipe` is the convolution over P; :meth:`basis` multiplies its values by the tanh.
    """

    trick = "The values of edges come from scores of both ends."

    least = 2**18

    def outside(self) -> list[str]:
        return ["tanh(att_l(X_m) + att_r(X_n)), which multiplies P[m, n]", "ε X_0"]

    def recipe(self) -> Recipe:
        return Propagation(normalised(self), flow=self.flow), {}

    def basis(
        self, conv: OuterConv, x: Tensor, edge_index: Tensor | Basis, edge_weight: OptTensor = None
    ) -> EdgeBasis:
        """A, one matrix: the values of P times the tanh of the numbers of both ends."""

        def share(of_ends: Tensor) -> Tensor:
            return F.dropout(of_ends.tanh(), self.dropout, self.training)

        edges = conv.basis(x, edge_index, edge_weight).edges()
        return edges.times_of_ends(self.att_l(x).squeeze(-1), self.att_r(x).squeeze(-1), share)

    def _of_inputs(
        self, x: Any, edge_index: Any, edge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, edge_weight, **beside)
        if self.normalize != (edge_weight is None):
            yield "PyG refuses weights with normalize, and a call without them otherwise"

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        x_0: Tensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        **unread: Any,
    ) -> Tensor:
        edge_index, edge_weight = kept_edges(self, conv, x, edge_index, edge_weight)
        out = conv(x, self.basis(conv, x, edge_index, edge_weight))
        return out if self.eps == 0.0 else out + self.eps * x_0
