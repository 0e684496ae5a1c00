"""Disjoint copies of a basis, I ⊗ A_k ⊗ I, contracted as items of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis.products import Repeated
from ..cost import Cost
from ..nested import solve, solve_transformed, solving, solving_transformed, stand_in, together
from ..order import Order
from ..problem import Problem
from ..work import transform


class PerCopy(Order):
    """I ⊗ A_k ⊗ I as the contraction over A_k of a batch with one item for each copy."""

    name = "per_copy"
    solves = (Repeated,)

    def cost(self, problem: Problem) -> Cost:
        """The contraction of the batch; without dense features, Θ first for all copies."""
        copies = problem.of(Repeated)
        shape = (copies.before, copies.after, *problem.batch)
        if problem.has_features:
            x = problem.features
            batch = stand_in((copies.base.size[0], *shape, x.size(-1)), x, problem.gradients[0])
            return solving(copies.base, batch, problem.parameter)
        rows = float(copies.size[0] * problem.num_labels)
        like = torch.empty(0, dtype=problem.dtype, device=problem.device)
        z = (copies.base.size[0], problem.num_labels, *shape, problem.out_channels)
        then = solving_transformed(copies.base, z, like, any(problem.gradients[:2]))
        return together(Cost(*transform(problem, rows)), then)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        copies = problem.of(Repeated)
        shape = (copies.before, copies.base.size[0], copies.after)
        if problem.has_features:
            out = solve(
                copies.base, problem.features.unflatten(0, shape).movedim(1, 0), problem.parameter
            )
        else:
            z = problem.transform().unflatten(0, shape).movedim((1, 3), (0, 1))
            out = solve_transformed(copies.base, z)
        return out.movedim(0, 1).flatten(0, 2)
