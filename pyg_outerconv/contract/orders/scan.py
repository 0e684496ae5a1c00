"""Sums over prefixes of a sequence: linear attention as the recurrent network that it is."""

from __future__ import annotations

from torch import Tensor

from ...basis.feature_product import FeatureProduct
from ..cost import Cost, Work
from ..head_products import collect_values, making_values, value_width, values
from ..order import Order
from ..problem import Problem
from ..rank import factored_of, needs_time, rank_work, received_by_values


class Scan(Order):
    """The values of each head first, then states of D × V numbers that run along the sequence.

    Of the two products only this order is worth having: X at its P channels would make wider
    states for each head.
    """

    name = "scan"
    solves = (FeatureProduct,)

    def lacks(self, problem: Problem) -> list[str]:
        """It needs an order of time."""
        return needs_time(problem, causal=True)

    def cost(self, problem: Problem) -> Cost:
        """(M + N)·H·D·V for states, and N·H·C·(D + V) within chunks of C."""
        basis, width = factored_of(problem), value_width(problem)
        made, back_made = making_values(problem)
        work, back, held = rank_work(problem, width, float(sum(basis.size)))
        chunks = basis.chunks(width)
        assert chunks is not None  # a sequence has them
        copies = float(problem.num_labels * problem.num_columns)
        scores = chunks.count * chunks.size * chunks.size * copies
        flops = 2.0 * scores * (basis.num_channels + width)
        near = Work(dense_flops=flops, calls=2)
        states = 2.0 * chunks.count * basis.num_channels * width * copies
        held += (scores + states) * problem.itemsize
        return Cost(
            made + work + near, back_made + back + near * (2.0 * any(problem.gradients)), held
        )

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return collect_values(problem, received_by_values(problem, values(problem)))
