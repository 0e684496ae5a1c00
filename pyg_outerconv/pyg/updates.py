"""A sum over the adjacency matrix, then an update of each node: GINConv, GatedGraphConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

import torch
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from .layer import DropIn, Recipe
from .reductions import check_reductions, propagations, reduced


class GINConv(DropIn, theirs.GINConv):
    r"""Y = h((A + (1 + ε) I)ᵀ X), with a network h and a number ε.

    From the `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ paper,
    equation 4.1.
    """

    takes_pairs = True
    least = 1_000_000

    def lacks(self) -> list[str]:
        return check_reductions(self)

    def outside(self) -> list[str]:
        held = ", ".join(name for name, _ in self.named_parameters())
        return [f"(1 + ε) X of the targets, and h of both together ({held})"]

    def recipe(self) -> Recipe:
        return propagations(self), {}

    def convolve(
        self, conv: Any, x: Union[Tensor, OptPairTensor], edge_index: Adj, size: Size = None
    ) -> Tensor:
        out = reduced(self, conv, x, edge_index, size=size)
        target = x[1] if isinstance(x, tuple | list) else x
        if target is not None:
            out = out + (1 + self.eps) * target
        return self.nn(out)


class GatedGraphConv(DropIn, theirs.GatedGraphConv):
    r"""X ← GRU(Aᵀ X W_t, X) for T steps, X being padded with zeros first.

    From the `"Gated Graph Sequence Neural Networks" <https://arxiv.org/abs/1511.05493>`_ paper.
    """

    trick = "A convolution for each step, torch's GRU between them."

    least = 500_000

    def lacks(self) -> list[str]:
        return check_reductions(self)

    def outside(self) -> list[str]:
        held = ", ".join(name for name, _ in self.rnn.named_parameters(prefix="rnn"))
        return [f"X weight[t] before, and the GRU after each step ({held})"]

    def _of_inputs(
        self, x: Any, edge_index: Any, edge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, edge_weight)
        if x.dim() != 2 or x.size(1) > self.out_channels:
            yield "features with a batch, or with more channels than the output"

    def recipe(self) -> Recipe:
        return propagations(self), {}

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if x.size(1) < self.out_channels:
            zeros = x.new_zeros(x.size(0), self.out_channels - x.size(1))
            x = torch.cat([x, zeros], dim=1)
        for weight in self.weight.unbind()[: self.num_layers]:
            x = self.rnn(reduced(self, conv, x @ weight, edge_index, edge_weight), x)
        return x
