"""Contract the identity: a linear layer on each node, without a sparse product."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ...basis.eye import Eye
from ...kernels import REDUCTIONS
from ..cost import Cost
from ..order import Order
from ..problem import Problem
from ..work import transform


class PerNode(Order):
    """X Θ for the identity; rows of targets beyond the number of sources are zero."""

    name = "per_node"
    solves = (Eye,)
    reductions = frozenset(REDUCTIONS)

    def cost(self, problem: Problem) -> Cost:
        """min(M, N)·P·Q dense."""
        return Cost(*transform(problem, float(min(problem.basis.size) * problem.num_columns)))

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        num_sources, num_targets = problem.basis.size
        shared = min(num_sources, num_targets)
        x = problem.x[:shared] if isinstance(problem.x, Tensor) else problem.x
        out = Problem(problem.basis, x, problem.parameter).transform().squeeze(1)[:shared]
        missing = num_targets - shared
        return out if missing == 0 else F.pad(out, (0, 0) * (out.dim() - 1) + (0, missing))
