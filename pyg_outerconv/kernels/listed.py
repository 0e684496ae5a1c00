"""Entries of a matrix in any order: what attention does with edges that are too few to sort."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .call import is_plain
from .edge_sums import add_up

SAFE = 60.0
"""Scores up to this size are raised as they are: nothing overflows or vanishes in float32."""


def is_safe(score: Tensor) -> bool:
    """Whether scores, at least one, may be raised as they are."""
    least, most = score.aminmax()
    return float(least) >= -SAFE and float(most) <= SAFE


class Listed(NamedTuple):
    """E entries of an R × C matrix as they come, whose values are in the same order.

    ``segment_softmax`` takes it in the place of a :class:`~.sparsity.Sparsity`. All is done by
    torch's own gathers and scatters, differentiable any number of times, which hold entries ×
    channels; :func:`~.edge_sums.is_small` says where that does not matter.

    Attributes:
        row, col: (E,) int64.
        shape: (R, C).
    """

    row: Tensor
    col: Tensor
    shape: tuple[int, int]

    @property
    def num_entries(self) -> int:
        """E."""
        return self.row.numel()

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """``a[row of e] + b[column of e]``, (E, *) of (R, *) and (C, *)."""
        return a.index_select(0, self.row) + b.index_select(0, self.col)

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        """``⟨a[row of e], b[column of e]⟩``, (E, *) of (R, *, D) and (C, *, D)."""
        return (a.index_select(0, self.row) * b.index_select(0, self.col)).sum(-1)

    def shares(self, score: Tensor) -> Tensor:
        """The softmax of (E, *) over the entries of each row; zeros where all are -inf."""
        rows = (self.shape[0], *score.shape[1:])
        safe = bool(score.numel()) and is_plain(score) and is_safe(score.detach())
        if not safe:
            most = self.highest(score.detach())
            score = score - most.masked_fill(most == -torch.inf, 0.0).index_select(0, self.row)
        raised = score.exp()
        total = raised.new_zeros(rows).index_add_(0, self.row, raised)
        if not safe:
            total = total.masked_fill(total == 0, 1.0)
        return raised / total.index_select(0, self.row)

    def raised(self, score: Tensor) -> Tensor:
        """exp of scores (E, *), less the largest of their row where they might leave the range.

        In their own memory, without derivatives.
        """
        if not is_safe(score):
            highest = self.highest(score)
            score -= highest.masked_fill_(highest == -torch.inf, 0.0).index_select(0, self.row)
        return score.exp_()

    def highest(self, score: Tensor) -> Tensor:
        """(R, *): the largest of (E, *) in each row, -inf in empty ones."""
        row = self.row.view(-1, *(1,) * (score.dim() - 1)).expand_as(score)
        most = score.new_full((self.shape[0], *score.shape[1:]), -torch.inf)
        return most.scatter_reduce_(0, row, score, "amax")

    def sums(self, value: Tensor, x: Tensor) -> Tensor:
        """``Σ value[e] x[column of e]`` over each row: (R, *, P) of (E, *) and (C, *, P)."""
        return add_up(self.col, self.row, value, x, self.shape[0])
