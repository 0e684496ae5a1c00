"""DirGNNConv: a layer along the edges, and its copy against them."""

from typing import Any

from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.nn import MessagePassing

from ..cache import IdentityCache
from .layer import OURS, DropIn, register

_flipped = IdentityCache()


class DirGNNConv(theirs.DirGNNConv):
    r"""Y = (1 − α) C(X, A) + α C'(X, Aᵀ) + X Θ + b, for a layer C and its copy C'.

    Both copies become layers of this package, if it has one of their class; their initial
    parameters are PyG's. From the `"Edge Directionality Improves Learning on Heterophilic Graphs"
    <https://arxiv.org/abs/2305.10498>`_ paper.
    """

    def __init__(self, conv: MessagePassing, alpha: float = 0.5, root_weight: bool = True):
        super().__init__(conv, alpha, root_weight)
        for copied in (self.conv_in, self.conv_out):
            ours = OURS.get(type(copied))
            if ours is not None:
                copied.__class__ = ours

    def lacks(self) -> list[str]:
        """The options of both copies that have no equal in the recipe of their class."""
        ours = [conv for conv in (self.conv_in, self.conv_out) if isinstance(conv, DropIn)]
        return [reason for conv in ours for reason in conv.lacks()]

    def why_not(self, x: Any = None, edge_index: Any = None) -> list[str]:
        """The reasons why PyG's own ``forward`` runs in a copy; see :meth:`DropIn.why_not`."""
        found = []
        for conv in (self.conv_in, self.conv_out):
            if isinstance(conv, DropIn):
                found += conv.why_not(x, edge_index)
            else:
                found.append(f"{type(conv).__name__} is PyG's")
        return found

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Y (N, Q) for features (N, P) and edges (2, E)."""
        # The same tensor at each call, by which layers know their edges again.
        against = _flipped.get(edge_index, (), None, lambda: edge_index.flip([0]))
        along = self.conv_in(x, edge_index)
        out = self.alpha * self.conv_out(x, against) + (1 - self.alpha) * along
        return out if self.lin is None or not self.root_weight else out + self.lin(x)


register(DirGNNConv, theirs.DirGNNConv)
