"""A_kᵀ X first, for all labels in one sparse product, then one dense product with Θ."""

from __future__ import annotations

from torch import Tensor

from ...kernels import REDUCTIONS
from ..cost import Cost, moving
from ..order import EXPLICIT, Order, has_made, needs_features
from ..problem import Problem
from ..rule import rank_of_form
from ..work import dense_product, sparse_product


class PropagateFirst(Order):
    """Σ_k (A_kᵀ X) Θ_k: cheap where inputs are narrower than outputs."""

    name = "propagate_first"
    propagates = True
    solves = EXPLICIT
    transforms = False
    adds_bias = True
    reductions = frozenset(REDUCTIONS)

    def lacks(self, problem: Problem) -> list[str]:
        """It needs features to propagate."""
        return needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """By the plain rule."""
        return rank_of_form(problem, first=False, compact=False)

    def is_prepared(self, problem: Problem) -> bool:
        """See :class:`Order`."""
        return has_made(problem, "by_target_label")

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, N·K·P·Q dense, N·K·P numbers."""
        sources, targets = problem.basis.size
        rows = float(targets * problem.num_labels)
        held = rows * problem.num_columns * problem.in_channels * problem.itemsize
        wanted = problem.gradients[0]
        first, first_back = sparse_product(problem, problem.in_channels, (sources, rows), wanted)
        deep = wanted or problem.gradients[2]
        then, then_back = dense_product(problem, rows * problem.num_columns, deep)
        between = moving(held)
        return Cost(first + between + then, then_back + between * deep + first_back, held)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        assert isinstance(problem.x, Tensor)  # why_not
        basis = problem.basis.edges()
        h = basis.propagate_rows(problem.x, problem.reduce)
        return problem.parameter.combine(h, basis.size[1], problem.bias)
