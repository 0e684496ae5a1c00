"""A sum over the adjacency matrix, then an update of each node: GINConv, GatedGraphConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from .layer import DropIn, Recipe, both
from .reductions import SEVERAL, propagations, reduced


class GINConv(DropIn, theirs.GINConv):
    """Y = h((A + (1 + ε) I)ᵀ X), with a network h and a number ε."""

    reductions = SEVERAL
    takes_pairs = True
    least = 1_000_000

    def outside(self) -> list[str]:
        held = ", ".join(name for name, _ in self.named_parameters())
        return [f"(1 + ε) X of the targets, and h of both together ({held})"]

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
        held = ", ".join(name for name, _ in self.rnn.named_parameters(prefix="rnn"))
        return [f"X weight[t] before, and the GRU after each step ({held})"]

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
