"""X Θ_k first, for all labels in one dense product, then one sparse sum over all edges."""

from __future__ import annotations

from torch import Tensor

from ..cost import Cost, moving
from ..order import EXPLICIT, Order, has_made
from ..problem import Problem
from ..rule import rank_of_form
from ..work import sparse_product, transform


class TransformFirst(Order):
    """Σ_k A_kᵀ (X Θ_k): cheap where outputs are narrower than inputs, or labels few."""

    name = "transform_first"
    solves = EXPLICIT
    transforms = True

    def rank(self, problem: Problem) -> int:
        """By the plain rule."""
        return rank_of_form(problem, first=True, compact=False)

    def is_prepared(self, problem: Problem) -> bool:
        """See :class:`Order`."""
        return has_made(problem, "by_target")

    def cost(self, problem: Problem) -> Cost:
        """M·K·P·Q dense, E·Q sparse, M·K·Q numbers."""
        wanted = any(problem.gradients[:2])
        sources, targets = problem.basis.size
        rows = float(sources * problem.num_labels)
        held = rows * problem.num_columns * problem.out_channels * problem.itemsize
        first, first_back = transform(problem, rows * problem.num_columns)
        then, then_back = sparse_product(problem, problem.out_channels, (rows, targets), wanted)
        between = moving(held)
        return Cost(first + between + then, then_back + between * wanted + first_back, held)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return problem.basis.edges().gather(problem.transform())
