"""One sparse product for each head, with the shares of all edges as a tensor."""

from __future__ import annotations

from torch import Tensor

from ...basis.attention_basis import AttentionBasis
from ...basis.multi_head_edges import MultiHeadEdges
from ..cost import Work
from ..head_order import HeadOrder, PropagateHeadsFirst, TransformHeadsFirst
from ..head_products import has_edges, heads_of
from ..problem import Problem
from ..work import sparse_product

# Passes over E·H numbers: scores, maxima, exponentials, sums, a copy of each head.
PASSES = 8.0


def making_shares(problem: Problem) -> tuple[Work, Work, float]:
    """Forward and backward work of the shares of all edges, and the bytes they take."""
    basis = heads_of(problem)
    if isinstance(basis, MultiHeadEdges):
        return Work(), Work(), 0.0
    columns = float(problem.num_labels // basis.num_labels * problem.num_columns)
    entries = basis.num_edges * columns
    line = float(basis.query.size(-1) * problem.itemsize)
    sources = basis.size[0] * line * columns
    sample = Work(gathers=((entries * line, sources),), calls=columns)
    size = entries * problem.itemsize
    passes = Work(moves=((PASSES * size, size),), calls=4)
    return sample + passes, (sample * 2.0 + passes) * basis.learns, 4.0 * size


class SpelledOut(HeadOrder):
    """Compute the shares of all edges, then a sparse product for each head."""

    solves = (MultiHeadEdges, AttentionBasis)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the edges and their matrix are cached."""
        return has_edges(problem)

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """The shares of edges, and E·H·width sparse."""
        shares, back_shares, held = making_shares(problem)
        sent, back_sent = _sending(problem, width)
        rows = float(problem.basis.size[1] * problem.num_labels * problem.num_columns)
        return shares + sent, back_shares + back_sent, held + rows * width * problem.itemsize

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""
        return heads_of(problem).times(x)


class HeadsTransformFirst(SpelledOut, TransformHeadsFirst):
    """Compute X Θ_h or the values of each head, then a sparse product for each head."""

    name = "heads_transform_first"


class HeadsPropagateFirst(SpelledOut, PropagateHeadsFirst):
    """Propagate X by a sparse product for each head, then Θ_h."""

    name = "heads_propagate_first"
    propagates = True


def _sending(problem: Problem, width: int) -> tuple[Work, Work]:
    """Forward and backward work of a sparse product of ``width`` channels for each head."""
    basis, (of_x, of_theta, _) = heads_of(problem), problem.gradients
    heads = problem.num_labels // basis.num_labels
    forward, back = sparse_product(
        problem, width, basis.size, of_x or of_theta, basis.num_edges * 1.0
    )
    return forward * heads, back * heads
