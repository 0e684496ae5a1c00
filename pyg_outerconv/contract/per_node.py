"""The identity: a linear layer on each node, no sparse product at all."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..basis.eye import Eye
from .order import Cost, Order
from .problem import Problem


class PerNode(Order):
    """X Θ for the identity; rows of targets without a source of their own are zero."""

    name = "per_node"

    def why_not(self, problem: Problem) -> list[str]:
        """It needs the identity."""
        if not isinstance(problem.basis, Eye):
            return [f"needs the identity, not a {type(problem.basis).__name__}"]
        return []

    def cost(self, problem: Problem) -> Cost:
        """min(M, N)·P·Q dense."""
        nodes = min(problem.basis.size) * problem.num_columns
        flops = 2.0 * nodes * problem.in_channels * problem.theta.size(3)
        return Cost(flops if problem.has_features else 0.0, 0.0, 0.0)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        num_sources, num_targets = problem.basis.size
        shared = min(num_sources, num_targets)
        x = problem.x if problem.x is None else problem.x[:shared]
        out = Problem(problem.basis, x, problem.theta).transform().squeeze(1)[:shared]
        missing = num_targets - shared
        return out if missing == 0 else F.pad(out, (0, 0) * (out.dim() - 1) + (0, missing))
