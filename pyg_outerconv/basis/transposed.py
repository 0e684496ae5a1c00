"""Transposed bases, as a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .base import Basis, nest
from .derived import Derived
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .makers import makes

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

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """The leaves of the transposed base: transposition moves inward to the edges."""
        return self.base.transposed().absorb(theta, reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Transposed:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Transposed(self.base.map(index_map, value_map))

    def __repr__(self) -> str:
        return f"Transposed({self.base!r})"
