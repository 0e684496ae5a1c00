"""Attention in one primitive: scores, softmax and sum, with nothing held for each edge."""

from __future__ import annotations

from torch import Tensor

from ...basis.attention_basis import AttentionBasis
from ..cost import Work
from ..head_order import HeadOrder, PropagateHeadsFirst, TransformHeadsFirst
from ..head_products import has_edges
from ..problem import Problem


def needs_softmax(problem: Problem) -> list[str]:
    """Reasons where values are not plain shares of a softmax."""
    basis = problem.of(AttentionBasis)
    if not basis.normalise.is_softmax:
        return [f"knows the softmax alone, not {basis.normalise}"]
    return []


class Attend(HeadOrder):
    """By ``attend``; the backward pass computes shares again."""

    solves = (AttentionBasis,)

    def needs(self, problem: Problem) -> list[str]:
        """A softmax of scaled products, and nothing that drops shares."""
        drops = ["drops no shares"] if problem.of(AttentionBasis).normalise.dropped else []
        return needs_softmax(problem) + drops

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the edges are made."""
        return has_edges(problem)

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """E·H·(D + width) gathered, two and a half times as much backwards."""
        basis = problem.of(AttentionBasis)
        columns = float(problem.num_labels // basis.num_labels * problem.num_columns)
        line = float((basis.query.size(-1) + width) * problem.itemsize)
        read = basis.num_edges * columns * line
        work = Work(gathers=((read, basis.size[0] * line),), calls=4 * columns)
        vector = float(basis.num_edges * problem.itemsize)
        work += Work(moves=((6.0 * vector * columns, vector),))
        return work, work * (2.5 * any(problem.gradients)), 4.0 * vector

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """See :class:`HeadOrder`."""
        return problem.of(AttentionBasis).attend(x)


class AttendTransformFirst(Attend, TransformHeadsFirst):
    """The values of each head first, then ``attend``."""

    name = "attend_transform_first"


class AttendPropagateFirst(Attend, PropagateHeadsFirst):
    """``attend`` on X itself, then Θ_h."""

    name = "attend_propagate_first"
    propagates = True
