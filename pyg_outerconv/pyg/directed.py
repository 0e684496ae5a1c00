"""DirGNNConv: a layer along the edges, and its copy against them."""

from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import nn as theirs
from torch_geometric.nn import MessagePassing

from ..errors import RefusedValue
from ..memo import Memo
from ..nn import OuterConv
from ..signatures import typed
from .layer import OURS, DropIn, Recipe, as_pygs, register
from .tie import is_recorded

_flipped = Memo()
_NAMES = ("conv_in", "conv_out")


class DirGNNConv(theirs.DirGNNConv):
    """Y = (1 − α) C(X, A) + α C'(X, Aᵀ) + X Θ + b, for a layer C and its copy C'.

    Both copies become layers of this package, if it has one of their class; their initial
    parameters are PyG's.
    """

    trick = "Two layers, one on the reversed edges."

    @typed
    def __init__(self, conv: MessagePassing, alpha: float = 0.5, root_weight: bool = True):
        super().__init__(conv, alpha, root_weight)
        for copied in (self.conv_in, self.conv_out):
            ours = OURS.get(type(copied))
            if ours is not None:
                copied.__class__ = ours

    def lacks(self) -> list[str]:
        """Why a copy is not a contraction: its class, or options that have no equal."""
        reasons: list[str] = []
        for conv in self._copies():
            ours = isinstance(conv, DropIn)
            reasons += conv.lacks() if ours else [f"{type(conv).__name__} has no equal class here"]
        return reasons

    def why_not(self, *args: Any, **named: Any) -> list[str]:
        """The reasons why PyG's own ``forward`` runs in a copy; see :meth:`DropIn.why_not`."""
        reasons = []
        for conv in self._copies():
            reasons += conv.why_not(*args, **named) if isinstance(conv, DropIn) else self.lacks()
        return reasons

    def outside(self) -> list[str]:
        """What the layer computes beside the convolutions of both copies."""
        descriptions = [
            f"(1 - alpha) times conv_in, alpha = {self.alpha} times conv_out against the edges"
        ]
        for name, conv in zip(_NAMES, self._copies(), strict=True):
            descriptions += [f"{name}: {text}" for text in conv.outside()]
        return descriptions if self.lin is None else [*descriptions, "X lin.weight.T + lin.bias"]

    def recipe(self) -> Recipe:
        """The convolutions of both copies, one after the other."""
        steps: list[Any] = []
        sources = {}
        for name, conv in zip(_NAMES, self._copies(), strict=True):
            module, own = conv.recipe()
            several = isinstance(module, ModuleList)
            for path, source in own.items():
                number, _, rest = path.partition(".") if several else ("0", "", path)
                sources[f"{len(steps) + int(number)}.{rest}"] = source.within(name)
            steps += module if several else [module]
        return ModuleList(steps), sources

    def outer_conv(self) -> OuterConv:
        """Refused: it is two convolutions."""
        raise RefusedValue("DirGNNConv is no convolution alone: it has several steps")

    def _copies(self) -> list[Any]:
        return [getattr(self, name) for name in _NAMES]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Y (N, Q) for features (N, P) and edges (2, E)."""
        if is_recorded():
            return super().forward(x, edge_index)  # type: ignore[no-any-return]
        # The same tensor at each call, by which layers know their edges again.
        against = _flipped.get(None, lambda: edge_index.flip([0]), edge_index)
        along = self.conv_in(x, edge_index)
        out = self.alpha * self.conv_out(x, against) + (1 - self.alpha) * along
        return out + self.lin(x) if self.root_weight else out

    def __prepare_scriptable__(self) -> Module:
        """The layer of PyG in the place of this one, which torch.jit.script compiles."""
        return as_pygs(self)


register(DirGNNConv, theirs.DirGNNConv)
