"""Bases whose nodes are those of another basis, exchanged or restricted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..kernels.lasting import lasting
from ..memo import cached_property
from ..signatures import typed
from .base import Basis, Shape
from .compound import Derived
from .edges import EdgeBasis
from .pattern import Pattern
from .products import Composed
from .registry import makes


@typed
@makes("transpose")
@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Derived):
    """A_kᵀ for every k, of size (N, M), of a basis without parts."""

    levels: ClassVar[int] = 0  # transposes cancel in pairs, so they cannot nest

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, exchanged from the base."""
        return self.base.size[::-1]

    def simpler(self) -> Basis:
        """The transpose of the base, computed now."""
        return self.base.transposed()

    def edges(self) -> EdgeBasis:
        """The transposed edges, from the base's order by source."""
        return self.base.edges().transposed_edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, N, M): the dense matrices of the base, transposed."""
        return self.base.to_dense(dtype).transpose(1, 2)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """The mean over the edges of each target, a source of the base."""
        return self.edges().mean(dtype)

    def transpose(self) -> Basis:
        """The base itself."""
        return self.base

    def grids(self) -> tuple[Shape, Shape] | None:
        """The grids of the base, exchanged."""
        found = self.base.grids()
        return None if found is None else (found[1], found[0])

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets]: the restricted base, transposed."""
        return self.base.restricted(targets, sources).transpose()

    def diagonal_block(self, nodes: Tensor) -> Basis:
        """A_k[nodes, nodes] of components: that of the base, transposed."""
        return self.base.diagonal_block(nodes).transpose()

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by the base in the other direction."""
        return self.base.reached(seen, labels, not transposed)


@typed
@makes("restrict")
@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Derived):
    """A_k[sources, targets] for a rule that cannot itself be restricted.

    Attributes:
        base: the basis of size (M, N).
        sources: (M',) distinct indices, or None for all.
        targets: (N',) distinct indices, or None for all.
    """

    levels: ClassVar[int] = 2  # as many as its product has

    sources: Tensor | None
    targets: Tensor | None

    @property
    def shares_nodes(self) -> bool:
        """False: the base has more nodes."""
        return False

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

    def simpler(self) -> Basis:
        """The composition with selection matrices."""
        return self.product

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

    def grids(self) -> None:
        """None: the nodes are not all cells of a grid."""

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Restricted:
        """A_k[sources, targets]: fewer rows and columns of the same base."""
        ends = _within(self.sources, sources), _within(self.targets, targets)
        return Restricted(self.base, *ends)

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
