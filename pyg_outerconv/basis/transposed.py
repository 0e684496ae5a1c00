"""A basis with every matrix transposed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Basis, TensorMap, nest
from .derived import Derived
from .edges import EdgeBasis


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

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Transposed:
        """See :meth:`Basis.map`."""
        return Transposed(self.base.map(index_map, value_map))

    def __repr__(self) -> str:
        return f"Transposed({self.base!r})"
