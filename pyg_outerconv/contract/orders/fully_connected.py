"""One dense product for a basis with one label for each pair of a source and a target."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis.eye import UnitMatrices
from ...kernels import REDUCTIONS
from ..cost import Cost, moving
from ..order import Order, needs_features
from ..problem import Problem
from ..work import dense_product


class FullyConnected(Order):
    """X as a row of M·P numbers times Θ as a matrix of M·P × N·Q, as in a linear layer.

    A label has at most one edge into a target, so all reductions over the inputs of a label are
    equal.
    """

    name = "fully_connected"
    solves = (UnitMatrices,)
    reductions = frozenset(REDUCTIONS)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features."""
        return needs_features(problem)

    def cost(self, problem: Problem) -> Cost:
        """M·N·P·Q dense, and a copy of Θ as one matrix."""
        of_x, of_theta, _ = problem.gradients
        forward, back = dense_product(
            problem, float(problem.num_labels * problem.num_columns), of_x
        )
        shape = problem.parameter.shape
        held = float(shape.numel() * problem.itemsize)
        return Cost(forward + moving(held), back + moving(held) * of_theta, held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        basis, x = problem.of(UnitMatrices), problem.features
        theta = problem.theta.unflatten(0, basis.shape)  # (M, N, G, P/G, Q/G)
        if basis.is_transposed:
            theta = theta.transpose(0, 1)
        sources, targets, groups, rows, columns = theta.shape
        if groups > 1:
            blocks = x.unflatten(-1, (groups, rows))
            return torch.einsum("m...gp,mngpq->n...gq", blocks, theta).flatten(-2)
        matrix = theta[:, :, 0].permute(0, 2, 1, 3).reshape(sources * rows, targets * columns)
        out = x.movedim(0, -2).flatten(-2) @ matrix
        return out.unflatten(-1, (targets, columns)).movedim(-2, 0)
