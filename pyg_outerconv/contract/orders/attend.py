"""Attention by one primitive: scores, softmax and sum, without storing the shares of edges."""

from __future__ import annotations

from torch import Tensor

from ...basis.attention_basis import AttentionBasis
from ..cost import Work
from ..head_order import HeadOrder, PropagateHeadsFirst, TransformHeadsFirst
from ..head_products import has_edges
from ..problem import Problem


def needs_softmax(problem: Problem) -> list[str]:
    """A reason if the normaliser is not a softmax."""
    basis = problem.of(AttentionBasis)
    if not basis.normalise.is_softmax:
        return [f"normalises by softmax only, not by {basis.normalise}"]
    return []


class Attend(HeadOrder):
    """Propagate by the primitive ``attend``; its backward pass recomputes the shares."""

    solves = (AttentionBasis,)

    def needs(self, problem: Problem) -> list[str]:
        """Requires a softmax without dropout of shares."""
        drops = ["has no dropout"] if problem.of(AttentionBasis).normalise.dropped else []
        return needs_softmax(problem) + drops

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the edges and their matrix are cached."""
        return has_edges(problem)

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """E·H·(D + width) numbers gathered; 2.5 times as much in the backward pass."""
        basis = problem.of(AttentionBasis)
        columns = float(problem.num_labels // basis.num_labels * problem.num_columns)
        line = float((basis.query.size(-1) + width) * problem.itemsize)
        read = basis.num_edges * columns * line
        work = Work(gathers=((read, basis.size[0] * line),), calls=4 * columns)
        vector = float(basis.num_edges * problem.itemsize)
        work += Work(moves=((6.0 * vector * columns, vector),))
        return work, work * (2.5 * any(problem.gradients)), 4.0 * vector

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""
        return problem.of(AttentionBasis).attend(x)


class AttendTransformFirst(Attend, TransformHeadsFirst):
    """Compute the values of each head, then ``attend``."""

    name = "attend_transform_first"


class AttendPropagateFirst(Attend, PropagateHeadsFirst):
    """``attend`` with X as the values, then Θ_h."""

    name = "attend_propagate_first"
    propagates = True
