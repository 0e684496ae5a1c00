"""What contenders for a layer's work share, and how each of them is made a contender."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.utils import to_torch_csr_tensor

from ...basis import Basis
from ...families import Family
from .case import FORWARD, PYG_COMPILED, SCATTER, TRAINING, Contender, Context, Setup, Work
from .graphs import random_graph
from .roofline import convolution

M = TypeVar("M", bound=Module)


class Sides:
    """The contenders of a point, ours first, which get the same x and gradient of Y."""

    def __init__(
        self,
        context: Context,
        x: Tensor,
        direction: Tensor,
        edge_index: Tensor | None = None,
    ) -> None:
        self.context, self.x, self.direction = context, x.requires_grad_(), direction
        self.edge_index = torch.empty(2, 0, dtype=torch.long) if edge_index is None else edge_index
        self.contenders: list[Contender] = []
        self.absent: dict[str, str] = {}  # why a peer is not run

    @classmethod
    def on_random_graph(
        cls, context: Context, nodes: int, p: int, q: int, degree: int = 12
    ) -> Sides:
        """On a graph of so many nodes at full scale, with ``degree`` edges into each on average."""
        generator = context.generator()
        nodes = context.size(nodes, at_least=8)
        edge_index = random_graph(nodes, degree * nodes, generator).to(context.device)
        x, direction = (context.randn(nodes, width, generator=generator) for width in (p, q))
        return cls(context, x, direction, edge_index)

    # What they work on --------------------------------------------------------------------------

    @property
    def nodes(self) -> int:
        """N."""
        return self.x.size(0)

    @property
    def edges(self) -> int:
        """E."""
        return self.edge_index.size(1)

    def placed(self, module: M) -> M:
        """A module on the device and in the type of the run."""
        return module.to(self.context.device, self.context.dtype)

    def basis(self, family: Family, **beside: Any) -> Basis:
        """The basis of a family on the graph."""
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
        wanted = [self.x, *parameters]

        def training() -> tuple[Tensor, ...]:
            return torch.autograd.grad(forward(), wanted, self.direction)

        def check() -> tuple[Tensor, Tensor]:
            out = forward()
            return out.detach(), torch.autograd.grad(out, self.x, self.direction)[0]

        steps = {FORWARD: torch.no_grad()(forward), TRAINING: training}
        self.contenders.append(Contender(name, steps, check, own))
        return self.contenders[-1]

    def layer(self, name: str, layer: Module, *given: Any, own: bool = False) -> Contender:
        """A module, which is called with x and what is given."""
        return self.add(name, lambda: layer(self.x, *given), layer.parameters(), own)

    def compiled(self, step: Callable[..., Tensor], *given: Any, of: Iterable[Tensor]) -> None:
        """PyG's layer under ``torch.compile``, and its parameters; none in a quick run."""
        if self.context.quick:
            reason = "left out of a quick run, which compiling would take most of"
            self.absent[PYG_COMPILED] = reason
            return
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
        fused = torch.compile(step)
        self.add(PYG_COMPILED, lambda: fused(*given), of)

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
        ends = (self.nodes, self.direction.size(0), self.x.size(-1), self.direction.size(-1))
        return convolution(ends, parameters, edges, rows, self.context.item_size, **further)

    def setup(
        self, sizes: Mapping[str, float | int | str], work: dict[str, Work] | None = None
    ) -> Setup:
        """The point; of a graph its nodes and edges are said first."""
        of_graph = {"nodes": self.nodes, "edges": self.edges} if self.edges else {}
        return Setup(self.contenders, {**of_graph, **sizes}, self.absent, work or {})
