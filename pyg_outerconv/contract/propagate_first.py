"""A_kᵀ X first, for all labels in one sparse product, then one dense product with Θ."""

from __future__ import annotations

from torch import Tensor

from ..basis.edges import EdgeBasis
from .order import Cost, Order, multiply
from .problem import Problem


class PropagateFirst(Order):
    """Σ_k (A_kᵀ X) Θ_k: cheap where inputs are narrower than outputs."""

    name = "propagate_first"

    def why_not(self, problem: Problem) -> list[str]:
        """It needs explicit edges, and features to propagate."""
        reasons = []
        if not isinstance(problem.basis, EdgeBasis):
            reasons.append(f"needs explicit edges, not a {type(problem.basis).__name__}")
        if not problem.has_features:
            reasons.append("needs node features, and there are none to propagate")
        return reasons

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, N·K·P·Q dense, N·K·P elements."""
        edges, columns = problem.basis.edges(), problem.num_columns
        sums = edges.size[1] * problem.num_labels * columns
        return Cost(
            dense_flops=2.0 * sums * problem.in_channels * problem.theta.size(3),
            sparse_flops=2.0 * edges.num_edges * problem.in_channels * columns,
            elements=float(sums * problem.in_channels),
        )

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        assert problem.x is not None  # why_not
        edges = problem.basis.edges()
        h = multiply(edges.pattern.by_target_label, edges, problem.x)
        return problem.collect(h.unflatten(0, (edges.size[1], edges.num_bases)))
