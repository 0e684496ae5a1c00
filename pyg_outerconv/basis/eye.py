"""The identity as a rule: one label, no edges held."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .base import Basis, TensorMap
from .cache import cached_property
from .edges import EdgeBasis
from .pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Eye(Basis):
    """One M × N matrix with ones where m = n. Where M ≠ N, only min(M, N) nodes see themselves."""

    shape: tuple[int, int]
    on: torch.device

    @property
    def num_bases(self) -> int:
        """1."""
        return 1

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.shape

    @property
    def device(self) -> torch.device:
        """Where its edges will be."""
        return self.on

    @property
    def dtype(self) -> torch.dtype | None:
        """None: ones fit any type."""
        return None

    @cached_property
    def _pattern(self) -> Pattern:
        with torch.inference_mode(False):  # What is kept must serve training too.
            nodes = torch.arange(min(self.shape), device=self.on)
            added = torch.full_like(nodes, -1)
            return Pattern.build(nodes.expand(2, -1), size=self.shape, origin=added)

    def edges(self) -> EdgeBasis:
        """Edges n → n for n < min(M, N), made once."""
        return EdgeBasis(self._pattern)

    def mean(self, dtype: torch.dtype | None = None) -> Eye:
        """Itself: every target has one edge at most."""
        return self

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Eye:
        """See :meth:`Basis.map`."""
        moved = index_map(torch.empty(0, device=self.on))  # there is no tensor to ask but a new one
        return Eye(self.shape, moved.device)

    def __repr__(self) -> str:
        return f"Eye(size={self.shape})"
