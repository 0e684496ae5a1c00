"""All unit matrices of one size as a rule, for fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..errors import RefusedValue, refusal
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class UnitMatrices(ImplicitEdges):
    """The K = M·N matrices with a single one: label k = m·N + n has only the edge m → n.

    Every matrix is a linear combination of these, so that a convolution over them is a fully
    connected layer.

    Attributes:
        shape: (M, N) before transposition; if transposed, label m·N + n has the edge n → m.

    Raises:
        ValueError: a number of nodes is negative.
    """

    shape: tuple[int, int]

    def __post_init__(self) -> None:
        if min(self.shape) < 0:
            raise RefusedValue(refusal("a matrix has a size", "M, N >= 0", self.shape))

    @property
    def num_bases(self) -> int:
        """Number of labels, M·N."""
        return self.shape[0] * self.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets: ``shape``, exchanged if transposed."""
        return self.shape[::-1] if self.is_transposed else self.shape

    @property
    def num_edges(self) -> int:
        """Number of edges M·N, one for each label."""
        return self.num_bases

    @property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), M·N."""
        return self.num_bases

    @property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), M·N."""
        return self.num_bases

    def make_edges(self) -> EdgeBasis:
        """Make the edges: one for each source and target, with a label of its own."""
        label = torch.arange(self.num_bases, device=self.on)
        columns = max(self.shape[1], 1)
        index = torch.stack([label // columns, label % columns])
        pattern = Pattern.build(
            index.flip(0) if self.is_transposed else index,
            label,
            size=self.size,
            num_labels=self.num_bases,
            origin=torch.full_like(label, -1),
        )
        return EdgeBasis(pattern)

    def mean(self, dtype: torch.dtype | None = None) -> UnitMatrices:
        """The basis itself: no target has two edges of one label."""
        return self

    def __repr__(self) -> str:
        return f"UnitMatrices(size={self.size}{', transposed' if self.is_transposed else ''})"
