"""Entries of a matrix in any order, for attention over few edges, which need no sorting."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .edge_sums import add_up
from .primitive import is_plain

SAFE = 60.0
"""exp of scores up to this absolute value neither overflows nor vanishes in float32."""


def is_safe(score: Tensor) -> bool:
    """Whether no score, of at least one, exceeds ``SAFE`` in absolute value."""
    least, most = score.aminmax()
    return float(least) >= -SAFE and float(most) <= SAFE


class Listed(NamedTuple):
    """The E entries of an R × C matrix in any order; values are in the same order.

    ``segment_softmax`` accepts it in place of a :class:`~.sparsity.Sparsity`. The methods use
    torch's gathers and scatters, are differentiable any number of times, and hold tensors of
    entries × channels; :func:`~.edge_sums.is_small` tells whether these are small.

    Attributes:
        row: (E,) int64, the row of each entry.
        col: (E,) int64, the column of each entry.
        shape: (R, C).
    """

    row: Tensor
    col: Tensor
    shape: tuple[int, int]

    @property
    def num_entries(self) -> int:
        """The number E of entries."""
        return self.row.numel()

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """``a[row of e] + b[column of e]``, (E, *), for a (R, *) and b (C, *)."""
        return a.index_select(0, self.row) + b.index_select(0, self.col)

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        """``⟨a[row of e], b[column of e]⟩``, (E, *), for a (R, *, D) and b (C, *, D)."""
        return (a.index_select(0, self.row) * b.index_select(0, self.col)).sum(-1)

    def shares(self, score: Tensor) -> Tensor:
        """The softmax of scores (E, *) over the entries of each row; zeros where all are -inf."""
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
        """exp of scores (E, *), in place, without derivatives.

        The largest score of each row is subtracted first if scores are not safe.
        """
        if not is_safe(score):
            highest = self.highest(score)
            score -= highest.masked_fill_(highest == -torch.inf, 0.0).index_select(0, self.row)
        return score.exp_()

    def highest(self, score: Tensor) -> Tensor:
        """The largest of the scores (E, *) of each row, (R, *); -inf in rows without entries."""
        row = self.row.view(-1, *(1,) * (score.dim() - 1)).expand_as(score)
        most = score.new_full((self.shape[0], *score.shape[1:]), -torch.inf)
        return most.scatter_reduce_(0, row, score, "amax")

    def sums(self, value: Tensor, x: Tensor) -> Tensor:
        """Sum ``value[e] x[column of e]`` over each row: (R, *, P), for (E, *) and (C, *, P)."""
        return add_up(self.col, self.row, value, x, self.shape[0])
