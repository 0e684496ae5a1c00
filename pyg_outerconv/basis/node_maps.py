"""Bases whose nodes are those of another basis, exchanged or restricted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache import cached_property
from ..kernels.lasting import lasting
from .base import Basis, nest
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .label_maps import Derived
from .pattern import Pattern
from .products import Composed
from .registry import makes

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@makes("transpose")
@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Derived):
    """A_kᵀ for every k, of size (N, M)."""

    def __post_init__(self) -> None:
        nest(self, self.base, levels=0)  # transposes cancel in pairs, so they cannot nest

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, exchanged from the base."""
        return self.base.size[::-1]

    def edges(self) -> EdgeBasis:
        """The transposed edges, from the base's order by source."""
        return self.base.edges().transposed_edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, N, M): the dense matrices of the base, transposed."""
        return self.base.to_dense(dtype).transpose(1, 2)

    def transpose(self) -> Basis:
        """The base itself."""
        return self.base

    def transposed(self) -> Basis:
        """The base itself."""
        return self.base

    def grids(self) -> tuple[Shape, Shape] | None:
        """The grids of the base, exchanged."""
        found = self.base.grids()
        return None if found is None else (found[1], found[0])

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets]: the restricted base, transposed."""
        return self.base.restricted(targets, sources).transpose()

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by the base in the other direction."""
        return self.base.reached(seen, labels, not transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X, by the transpose of the base."""
        return self.base.transposed().propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`; see :meth:`.Kind.products`."""
        return self.base.transposed().products(shape, learns)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of the transposed base: transposition moves inward to the edges."""
        return self.base.transposed().absorb(theta, aggr)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Transposed:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Transposed(self.base.map(index_map, value_map))

    def __repr__(self) -> str:
        return f"Transposed({self.base!r})"


@makes("restrict")
@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Derived):
    """A_k[sources, targets] for a rule that cannot itself be restricted.

    Attributes:
        base: the basis of size (M, N).
        sources: (M',) distinct indices, or None for all.
        targets: (N',) distinct indices, or None for all.
    """

    sources: Tensor | None
    targets: Tensor | None

    def __post_init__(self) -> None:
        nest(self, self.base, levels=2)  # as many as its product has

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
        """The composition S A_k T, with selection matrices S (M', M) and T (N, N')."""
        out, (rows, columns) = self.base, self.base.size
        if self.sources is not None:
            out = Composed(_selection_matrix(self.sources, rows).transposed_edges(), out)
        if self.targets is None:
            return out
        return Composed(out, _selection_matrix(self.targets, columns))

    def edges(self) -> EdgeBasis:
        """The edges of the base between the selected nodes."""
        return self.base.edges().restricted(self.sources, self.targets)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M', N') from the dense base."""
        dense = self.base.to_dense(dtype)
        dense = dense if self.sources is None else dense.index_select(1, self.sources)
        return dense if self.targets is None else dense.index_select(2, self.targets)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """The mean over the remaining edges.

        Raises:
            ValueError: the base hides its edges.
        """
        self.base.mean(dtype)  # raises if edges are hidden
        return self.edges().mean(dtype)

    def transpose(self) -> Basis:
        """The restriction of the transpose, with rows and columns exchanged."""
        return Restricted(self.base.transpose(), self.targets, self.sources)

    def grids(self) -> tuple[Shape, Shape] | None:
        """None: the nodes are not all cells of a grid."""
        return None

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """``change`` applied to every edge set: those of the base, which has other nodes."""
        return change(self.edges()) if same_nodes else super().with_edges(change)

    def transposed(self) -> Basis:
        """The transpose, which is never lazy here."""
        return self.transpose()

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Restricted:
        """A_k[sources, targets]: fewer rows and columns of the same base."""
        ends = _within(self.sources, sources), _within(self.targets, targets)
        return Restricted(self.base, *ends)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by the product."""
        return self.product.reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: along the product."""
        return self.product.propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of the product."""
        return self.product.products(shape, learns)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of :attr:`product`."""
        return self.product.absorb(theta, aggr)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Restricted:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
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


def _selection_matrix(nodes: Tensor, count: int) -> EdgeBasis:
    """The (count, n) matrix with a one at ``[nodes[i], i]`` for each i."""
    places = torch.arange(nodes.numel(), device=nodes.device)
    with lasting(nodes):
        return EdgeBasis(Pattern.build(torch.stack([nodes, places]), size=(count, nodes.numel())))
