"""What contenders for a layer's work share, and how each of them is made a contender."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from ...basis import Basis
from ...families import Family
from .case import FORWARD, PYG_COMPILED, SCATTER, TRAINING, Contender, Context, Setup, Sizes, Work
from .roofline import convolution

M = TypeVar("M", bound=Module)
QUICK = "left out of a quick run, which compiling would take most of"


def contender(
    name: str,
    forward: Callable[[], Tensor],
    wanted: Sequence[Tensor],
    direction: Tensor,
    own: bool = False,
    compared: int | None = 1,
) -> Contender:
    """A contender: its forward pass without gradient, and with those of what is wanted.

    Results must agree, and the first ``compared`` gradients; None for all.
    """

    def gradients(out: Tensor, of: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, of, direction) if of else (out.detach(),)

    def check() -> tuple[Tensor, ...]:
        out = forward()
        return out.detach(), *gradients(out, wanted[:compared])

    steps = {FORWARD: torch.no_grad()(forward), TRAINING: lambda: gradients(forward(), wanted)}
    return Contender(name, steps, check, own)


class Sides:
    """The contenders of a point, ours first, which get the same x and gradient of Y."""

    def __init__(
        self,
        context: Context,
        shape: Sequence[int],
        edge_index: Tensor | None = None,
        types: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        generator = generator or context.generator()
        self.context = context
        self.x = context.randn(*shape, generator=generator).requires_grad_()
        self.direction = context.randn(*shape, generator=generator)
        none = torch.empty(2, 0, dtype=torch.long)
        self.edge_index = (none if edge_index is None else edge_index).to(context.device)
        self.types = None if types is None else types.to(context.device)
        self.contenders: list[Contender] = []
        self.absent: dict[str, str] = {}  # why a peer is not run

    # What they work on --------------------------------------------------------------------------

    @property
    def nodes(self) -> int:
        """N."""
        return self.x.size(0)

    @property
    def edges(self) -> int:
        """E."""
        return self.edge_index.size(1)

    @property
    def data(self) -> Data:
        """The graph, as PyG has it."""
        types = {} if self.types is None else {"edge_type": self.types}
        return Data(self.x.detach(), self.edge_index, **types)

    def placed(self, module: M) -> M:
        """A module on the device and in the type of the run."""
        return module.to(self.context.device, self.context.dtype)

    def basis(self, family: Family) -> Basis:
        """The basis of a family on the graph."""
        beside: dict[str, Any] = {} if self.types is None else {"edge_type": self.types}
        size, dtype = (self.nodes, self.nodes), self.context.dtype
        return family.basis(self.edge_index, size=size, dtype=dtype, **beside)

    def matrix(self, edge_index: Tensor, weight: Tensor) -> Any:
        """A weighted adjacency as PyG takes it in the place of edges: its transpose in CSR."""
        size = (self.nodes, self.nodes)
        return to_torch_csr_tensor(edge_index.flip(0), weight, size=size)

    # Contenders ---------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        forward: Callable[[], Tensor],
        parameters: Iterable[Tensor] = (),
        own: bool = False,
    ) -> Contender:
        """A contender: its forward pass without gradient, and with those of x and parameters."""
        new_contender = contender(name, forward, [self.x, *parameters], self.direction, own)
        self.contenders.append(new_contender)
        return new_contender

    def layer(
        self, name: str, layer: Module, *arguments: Any, own: bool = False, **beside: Any
    ) -> Contender:
        """A module, which is called with x and what is given."""
        return self.add(name, lambda: layer(self.x, *arguments, **beside), layer.parameters(), own)

    def compiled(
        self, step: Callable[..., Tensor], *arguments: Any, of: Iterable[Tensor], **beside: Any
    ) -> None:
        """PyG's layer under ``torch.compile``, and its parameters; none in a quick run."""
        if self.context.quick:
            self.absent[PYG_COMPILED] = QUICK
            return
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
        fused = torch.compile(step)
        self.add(PYG_COMPILED, lambda: fused(*arguments, **beside), of)

    def torch_scatter(self) -> Any:
        """The module; None, with the reason in ``absent``, if it cannot be imported."""
        try:
            return importlib.import_module("torch_scatter")
        except Exception as error:  # an extension built for another torch fails in its own ways
            missing = isinstance(error, ModuleNotFoundError) and error.name == "torch_scatter"
            reason = "not installed" if missing else f"{type(error).__name__}: {error}"
            self.absent[SCATTER] = reason
            return None

    # The point ----------------------------------------------------------------------------------

    def work(self, parameters: int, edges: int, rows: int, **further: Any) -> dict[str, Work]:
        """The least work of a convolution, see :func:`.roofline.convolution`."""
        ends = (self.nodes, self.nodes, self.x.size(-1), self.x.size(-1))
        return convolution(ends, parameters, edges, rows, self.context.item_size, **further)

    def setup(self, sizes: Sizes, work: dict[str, Work] | None = None) -> Setup:
        """The point; of a graph its nodes and edges are said first."""
        of_graph = {"nodes": self.nodes, "edges": self.edges} if self.edges else {}
        return Setup(self.contenders, {**of_graph, **sizes}, self.absent, work or {})
