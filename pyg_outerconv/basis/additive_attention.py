"""Additive attention as a basis: scores are the sum of a source term and a target term (GAT)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..kernels import edge_sums
from ..kernels.attend_ends import (
    MOST_SENT,
    attend_by_primitives,
    attend_ends,
    can_attend_ends,
    shares_of_ends,
)
from ..kernels.head_copies import copies_for
from ..memo import cached_property
from .base import Basis
from .edges import EdgeBasis
from .multi_head_edges import MultiHeadEdges, listed_edges
from .pattern import Pattern

MOST_AGAIN, WIDE, OFTEN = 2**17, 8, 8
"""Beyond so many edges times channels, with heads that are so wide, edges are sorted once they were
attended over so often. A sort takes as long as one pass in training, and each pass after it 15 to
30 % less."""


@dataclass(frozen=True, eq=False, repr=False)
class AdditiveAttentionBasis(Basis):
    """A_h[m, n] = softmax over m of leaky_relu(⟨a_s, X_m V_h⟩ + ⟨a_t, X_n V_h⟩) on some edges.

    Computed lazily. If only the sums of the values X V_h are needed, one primitive computes values,
    scores and sums.

    Attributes:
        over: the E edges, with one label.
        x: (N, P) features of the nodes, which are sources and targets.
        value: (H, P, D), the matrices V_h.
        of_source, of_target: (H, D), the vectors a_s and a_t.
        slope: the negative slope of the leaky ReLU.
    """

    is_leaf: ClassVar[bool] = True
    has_heads: ClassVar[bool] = True
    has_edges: ClassVar[bool] = True
    num_labels: ClassVar[int] = 1  # of the edges, which all heads share

    over: EdgeBasis
    x: Tensor
    value: Tensor
    of_source: Tensor
    of_target: Tensor
    slope: float

    @property
    def num_bases(self) -> int:
        return self.value.size(0)

    @property
    def size(self) -> tuple[int, int]:
        return self.over.pattern.size

    @property
    def pattern(self) -> Pattern:
        """The edges, with one label."""
        return self.over.pattern

    @property
    def num_edges(self) -> int:
        """E, of each head."""
        return self.pattern.num_edges

    def plan_key(self) -> tuple[Hashable, ...]:
        x, value, source, target = self.x, self.value, self.of_source, self.of_target
        learns = value.requires_grad or source.requires_grad or target.requires_grad
        shapes = value.shape, self.over.pattern.shape_class
        return *shapes, x.device, x.dtype, learns or x.requires_grad

    def sums(self) -> Tensor:
        """A_hᵀ X V_h for each head: (N, H, D)."""
        pattern, (heads, _, width) = self.over.pattern, self.value.shape
        operands = self.x, self.value, self.of_source, self.of_target
        if not can_attend_ends(*operands):
            return attend_by_primitives(*operands, pattern.by_target, self.slope)
        if torch.compiler.is_compiling():
            return attend_ends(*operands, pattern.by_target, self.slope)
        numbers = pattern.num_edges * heads * width
        is_few = numbers <= min(edge_sums.MOST, MOST_SENT) and pattern.can_list
        if is_few and numbers > MOST_AGAIN and width >= WIDE:
            pattern.uses["attended"] += 1
            is_few = pattern.uses["attended"] <= OFTEN
        entries = listed_edges(pattern) if is_few else copies_for(pattern.by_target, heads)
        return attend_ends(*operands, entries, self.slope)

    def heads(self) -> MultiHeadEdges:
        """The attention weights of all edges and heads, computed at the first call."""
        return self._heads

    @cached_property
    def _heads(self) -> MultiHeadEdges:
        pattern, operands = self.pattern, (self.x, self.value, self.of_source, self.of_target)
        return MultiHeadEdges(pattern, shares_of_ends(*operands, pattern.by_target, self.slope))

    def times(self, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head, by the weights of the edges: (M, *batch, H, C) to (N, …)."""
        return self.heads().times(x)

    def propagate(self, x: Tensor) -> Tensor:
        return self.heads().propagate(x)

    def edges(self) -> EdgeBasis:
        return self.heads().edges()
