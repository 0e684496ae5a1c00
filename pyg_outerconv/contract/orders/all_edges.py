"""All edges in one sparse product, whatever their label: where Θ is the identity."""

from __future__ import annotations

from torch import Tensor

from ...basis.multiply import multiply
from ...kernels import REDUCTIONS
from ..cost import Cost, Work
from ..order import EXPLICIT, Order, has_made, needs_features
from ..problem import Problem
from ..rule import is_plain
from ..work import sparse_product


class AllEdges(Order):
    """reduce_{k, m} A_k[m, n] X[m] for Θ_k = I: labels are one set of edges.

    Right where inputs and labels are reduced alike, or where one edge at most joins a target and a
    label, so that there is nothing to reduce within labels (pooling). Sums take Θ_k = c I too. Of
    equal entries the first takes the gradient, which is that of the lowest label.
    """

    name = "all_edges"
    solves = EXPLICIT
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"sum", "max", "min"})

    def lacks(self, problem: Problem) -> list[str]:
        """It needs features, Θ_k = I, and one reduction."""
        reasons = needs_features(problem)
        if problem.unit is None or problem.unit.constant is None:
            reasons.append("needs theta to be the identity, and the same for every label")
        elif problem.label_reduce != "sum" and not problem.is_identity:
            reasons.append("needs theta to be the identity itself where labels are compared")
        # Last, because pairs have to be counted.
        if not reasons and problem.reduce != problem.label_reduce and not is_one_each(problem):
            reasons.append(
                f"needs one reduction, or one edge at most for each target and label, and not "
                f"{problem.reduce} within labels, then {problem.label_reduce}"
            )
        return reasons

    def rank(self, problem: Problem) -> int:
        """Where it may, there is no label to tell apart."""
        return -2 if is_plain(problem) else 1

    def is_prepared(self, problem: Problem) -> bool:
        """See :class:`Order`."""
        return has_made(problem, "ends")

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, and for max and min the place of what wins."""
        of_x, _, of_basis = problem.gradients
        width, ends = problem.in_channels, problem.basis.size
        forward, back = sparse_product(problem, width, ends, of_x)
        rows = float(ends[1] * width * problem.num_columns)
        if problem.label_reduce == "sum":
            return Cost(forward, back)
        # Edges that win are looked up, and their gradients scattered, row by row of the result.
        line = rows * problem.itemsize
        picked = Work(picks=((line, float(ends[0] * width * problem.itemsize)),), calls=6)
        places = Work(moves=((8.0 * rows, 8.0 * rows),) * 3)
        held = 16.0 * rows + 8.0 * problem.num_edges  # indices of torch are long
        return Cost(forward + picked + places, (picked + places) * (of_x + of_basis), held)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        assert isinstance(problem.x, Tensor)  # why_not
        assert problem.unit is not None
        edges, factor = problem.edges, problem.unit.constant
        assert factor is not None
        out = multiply(edges.pattern.ends, edges, problem.x, reduce=problem.label_reduce)
        return out if factor == 1.0 else out * factor


def is_one_each(problem: Problem) -> bool:
    """Whether one edge at most joins a target and a label."""
    return problem.num_edges == problem.num_target_pairs
