"""One sparse product over the edges of all labels, for Θ_k = c I."""

from __future__ import annotations

from torch import Tensor

from ...basis.edges import multiply
from ...kernels import REDUCTIONS
from ..cost import Cost, Work
from ..order import EXPLICIT, Order, has_made, needs_features
from ..problem import Problem
from ..rule import is_plain
from ..work import sparse_product


class AllEdges(Order):
    """reduce_{k, m} A_k[m, n] X[m] for Θ_k = I: edges of all labels are one set.

    Inputs and labels must have the same reduction, unless each (target, label) has at most one edge
    (pooling). Sums also allow Θ_k = c I. Of equal entries the one with the lowest label takes the
    gradient.
    """

    name = "all_edges"
    solves = EXPLICIT
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"sum", "max", "min"})

    def lacks(self, problem: Problem) -> list[str]:
        """Requires features, Θ_k = c I, and one reduction for inputs and labels."""
        reasons = needs_features(problem)
        if problem.unit is None or problem.unit.constant is None:
            reasons.append("needs theta to be the identity times one number for all labels")
        elif problem.label_reduce != "sum" and not problem.is_identity:
            reasons.append("needs theta to be the identity itself where labels are compared")
        # Last, because it counts pairs.
        if not reasons and problem.reduce != problem.label_reduce and not is_one_each(problem):
            reasons.append(
                f"needs one reduction, or at most one edge for each target and label, not "
                f"{problem.reduce} within labels, then {problem.label_reduce}"
            )
        return reasons

    def rank(self, problem: Problem) -> int:
        """Best for explicit edges: it does not tell labels apart."""
        return -2 if is_plain(problem) else 1

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "ends")

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse; for max and min also the index of the winning edge, N·P numbers."""
        of_x, _, of_basis = problem.gradients
        width, ends = problem.in_channels, problem.basis.size
        forward, back = sparse_product(problem, width, ends, of_x)
        rows = float(ends[1] * width * problem.num_columns)
        if problem.label_reduce == "sum":
            return Cost(forward, back)
        # Winning edges are looked up, and their gradients scattered, row by row of the result.
        line = rows * problem.itemsize
        picked = Work(picks=((line, float(ends[0] * width * problem.itemsize)),), calls=6)
        places = Work(moves=((8.0 * rows, 8.0 * rows),) * 3)
        held = 16.0 * rows + 8.0 * problem.num_edges  # indices of torch are int64
        return Cost(forward + picked + places, (picked + places) * (of_x + of_basis), held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        assert isinstance(problem.x, Tensor)  # lacks() requires it
        assert problem.unit is not None
        edges, factor = problem.edges, problem.unit.constant
        assert factor is not None
        out = multiply(edges.pattern.ends, edges, problem.x, reduce=problem.label_reduce)
        return out if factor == 1.0 else out * factor


def is_one_each(problem: Problem) -> bool:
    """Whether each (target, label) pair has at most one edge."""
    return problem.num_edges == problem.num_target_pairs
