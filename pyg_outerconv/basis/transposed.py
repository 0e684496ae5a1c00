"""A basis with every matrix transposed."""

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
    """A_kᵀ for every k: the edges turned round, size (N, M)."""

    def __post_init__(self) -> None:
        nest(self, self.base, levels=0)  # two of them are none

    @property
    def size(self) -> tuple[int, int]:
        """(N, M) of the base."""
        return self.base.size[::-1]

    def edges(self) -> EdgeBasis:
        """The turned edges; the base's order by source serves, nothing is sorted."""
        return self.base.edges().transposed_edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, N, M) of the base, turned."""
        return self.base.to_dense(dtype).transpose(1, 2)

    def transpose(self) -> Basis:
        """The base: turning twice changes nothing."""
        return self.base

    def transposed(self) -> Basis:
        """The base."""
        return self.base

    def grids(self) -> tuple[Shape, Shape] | None:
        """Those of the base, exchanged."""
        found = self.base.grids()
        return None if found is None else (found[1], found[0])

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """See :meth:`.Kind.restricted`: columns and rows of the base, turned."""
        return self.base.restricted(targets, sources).transpose()

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`: by the base the other way."""
        return self.base.reached(seen, labels, not transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: by the transpose of the base, one level in."""
        return self.base.transposed().propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`."""
        return self.base.transposed().products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """The transpose moves inward until it meets edges."""
        return self.base.transposed().absorb(theta, reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Transposed:
        """See :meth:`Basis.map`."""
        return Transposed(self.base.map(index_map, value_map))

    def __repr__(self) -> str:
        return f"Transposed({self.base!r})"
