"""Signed attention that adapts to low and to high frequencies: FAConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor

from ..basis import Basis, EdgeBasis
from ..nn import OuterConv
from .gcn import kept_edges, normalised
from .layer import DropIn, Recipe
from .propagation import Propagation


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
