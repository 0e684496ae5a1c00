"""Rows and columns of a basis: some of its sources, some of its targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache import cached_property
from ..kernels.lasting import lasting
from .base import Basis, nest
from .composed import Composed
from .derived import Derived
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .makers import makes
from .pattern import Pattern

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@makes("restrict")
@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Derived):
    """A_k[sources, targets] for a rule whose rows and columns cannot be taken away beforehand.

    Attributes:
        base: of size (M, N).
        sources: (M',) distinct indices, or None for all.
        targets: (N',) the same.
    """

    sources: Tensor | None
    targets: Tensor | None

    def __post_init__(self) -> None:
        nest(self, self.base, levels=2)  # those of the product

    @property
    def size(self) -> tuple[int, int]:
        """(M', N')."""
        rows, columns = self.base.size
        return (
            rows if self.sources is None else self.sources.numel(),
            columns if self.targets is None else self.targets.numel(),
        )

    @cached_property
    def product(self) -> Basis:
        """S A_k T, with a matrix S that spreads sources and a T that picks targets."""
        out, (rows, columns) = self.base, self.base.size
        if self.sources is not None:
            out = Composed(_picking(self.sources, rows).transposed_edges(), out)
        return out if self.targets is None else Composed(out, _picking(self.targets, columns))

    def edges(self) -> EdgeBasis:
        """The edges of the base between the nodes that stay."""
        return self.base.edges().restricted(self.sources, self.targets)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M', N') of the dense base."""
        dense = self.base.to_dense(dtype)
        dense = dense if self.sources is None else dense.index_select(1, self.sources)
        return dense if self.targets is None else dense.index_select(2, self.targets)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """The mean over the edges that stay, where they can be known.

        Raises:
            ValueError: the base is lazy in a way that hides its edges.
        """
        self.base.mean(dtype)  # which refuses
        return self.edges().mean(dtype)

    def transpose(self) -> Basis:
        """Columns and rows of the transpose."""
        return Restricted(self.base.transpose(), self.targets, self.sources)

    def grids(self) -> tuple[Shape, Shape] | None:
        """None: nodes are not all cells."""
        return None

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """See :meth:`.Kind.with_edges`: those of the base, which has other nodes."""
        return change(self.edges()) if same_nodes else super().with_edges(change)

    def transposed(self) -> Basis:
        """The transpose, which is nothing put off."""
        return self.transpose()

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Restricted:
        """See :meth:`.Kind.restricted`: fewer rows and columns of the same base."""
        ends = _within(self.sources, sources), _within(self.targets, targets)
        return Restricted(self.base, *ends)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`: by the product."""
        return self.product.reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: along the product."""
        return self.product.propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`: those of the product."""
        return self.product.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """What the product is taken apart into."""
        return self.product.absorb(theta, reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Restricted:
        """See :meth:`Basis.map`."""
        return Restricted(
            self.base.map(index_map, value_map),
            None if self.sources is None else index_map(self.sources),
            None if self.targets is None else index_map(self.targets),
        )

    def __repr__(self) -> str:
        return f"Restricted(size={self.size}, {self.base!r})"


def _within(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer.index_select(0, inner)


def _picking(nodes: Tensor, count: int) -> EdgeBasis:
    """(count × n) the matrix that brings node ``nodes[i]`` to place i."""
    places = torch.arange(nodes.numel(), device=nodes.device)
    with lasting(nodes):
        return EdgeBasis(Pattern.build(torch.stack([nodes, places]), size=(count, nodes.numel())))
