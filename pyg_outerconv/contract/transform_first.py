"""X Θ_k first, for all labels in one dense product, then one sparse sum over all edges."""

from __future__ import annotations

from torch import Tensor

from ..basis.edges import EdgeBasis
from .order import Cost, Order, multiply
from .problem import Problem


class TransformFirst(Order):
    """Σ_k A_kᵀ (X Θ_k): cheap where outputs are narrower than inputs, or labels few."""

    name = "transform_first"

    def why_not(self, problem: Problem) -> list[str]:
        """It needs explicit edges."""
        if not isinstance(problem.basis, EdgeBasis):
            return [f"needs explicit edges, not a {type(problem.basis).__name__}"]
        return []

    def cost(self, problem: Problem) -> Cost:
        """M·K·P·Q dense, E·Q sparse, M·K·Q elements."""
        edges, columns = problem.basis.edges(), problem.num_columns
        products = edges.size[0] * problem.num_labels * columns
        dense = 2.0 * products * problem.in_channels * problem.theta.size(3)
        return Cost(
            dense_flops=dense if problem.has_features else 0.0,
            sparse_flops=2.0 * edges.num_edges * problem.out_channels * columns,
            elements=float(products * problem.out_channels),
        )

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        edges = problem.basis.edges()
        z = problem.transform()
        return multiply(edges.pattern.by_target, edges, z.flatten(0, 1))
