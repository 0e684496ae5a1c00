"""Contract a composed basis factor by factor, without multiplying sparse matrices."""

from __future__ import annotations

from math import prod

from torch import Tensor

from ...basis.products import Composed
from ..cost import Cost, moving
from ..nested import (
    propagating,
    solve,
    solve_transformed,
    solving,
    solving_transformed,
    stand_in,
    together,
)
from ..order import Order, needs_features
from ..problem import Problem


def _by_pairs(problem: Problem) -> Tensor:
    """Θ_ij as (K₁, K₂, G, P/G, Q/G)."""
    factors = problem.of(Composed)
    return problem.theta.unflatten(0, (factors.first.num_bases, factors.second.num_bases))


def _narrows(problem: Problem) -> bool:
    """Whether K₂·Q ≤ K₁·P: z has at most as many channels as H."""
    factors = problem.of(Composed)
    ours, theirs = factors.first.num_bases, factors.second.num_bases
    return theirs * problem.out_channels <= ours * problem.in_channels


def _with_result(problem: Problem, cost: Cost, size: float) -> Cost:
    """``cost`` plus that of an intermediate result of ``size`` bytes."""
    held = moving(size)
    return together(cost, Cost(held, held * any(problem.gradients), size))


class ChainTransform(Order):
    """z_j = Σ_i A_iᵀ X Θ_ij at width K₂·Q by one contraction over A, then Σ_j B_jᵀ z_j."""

    name = "chain_transform"
    solves = (Composed,)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether it is the narrower order: torch.compile takes it without comparing costs."""
        return not problem.has_features or _narrows(problem)

    def cost(self, problem: Problem) -> Cost:
        """Both contractions, and L·K₂·Q numbers between them."""
        factors, theta = problem.of(Composed), self._wide(problem)
        middle, pairs = factors.first.size[1], factors.second.num_bases
        of_x, of_theta, _ = problem.gradients
        learns = of_x or of_theta or factors.first.learns
        shape = (middle, pairs, *problem.batch, problem.out_channels)
        first = solving(factors.first, problem.x, theta)
        second = solving_transformed(factors.second, shape, theta, learns)
        return _with_result(problem, together(first, second), float(prod(shape) * problem.itemsize))

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        factors, theta = problem.of(Composed), self._wide(problem)
        z = solve(factors.first, problem.x, theta)  # (L, *batch, G·K₂·Q/G)
        groups, columns = problem.num_blocks, problem.parameter.shape[3]
        parts = z.unflatten(-1, (groups, factors.second.num_bases, columns)).movedim(-2, 1)
        return solve_transformed(factors.second, parts.flatten(-2))

    @staticmethod
    def _wide(problem: Problem) -> Tensor:
        """Θ for the first factor: (K₁, G, P/G, K₂·Q/G)."""
        return _by_pairs(problem).permute(0, 2, 3, 1, 4).flatten(3)


class ChainPropagate(Order):
    """H_i = A_iᵀ X for all i, then one contraction over B of K₁·P channels with Θ."""

    name = "chain_propagate"
    solves = (Composed,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features."""
        return needs_features(problem)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether it is the narrower order, as for :class:`ChainTransform`."""
        return not _narrows(problem)

    def cost(self, problem: Problem) -> Cost:
        """Propagation, the second contraction, and L·K₁·P numbers between them."""
        factors, theta, x = problem.of(Composed), self._tall(problem), problem.features
        learns = problem.gradients[0] or factors.first.learns
        width = factors.first.num_bases * problem.in_channels
        shape = (factors.first.size[1], *problem.batch, width)
        first = propagating(factors.first, x)
        second = solving(factors.second, stand_in(shape, x, learns), theta)
        return _with_result(problem, together(first, second), float(prod(shape) * problem.itemsize))

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        factors, theta, x = problem.of(Composed), self._tall(problem), problem.features
        h = factors.first.propagate(x)  # (L, K₁, *batch, P)
        blocks = h.movedim(1, -2)
        if problem.num_blocks > 1:  # channels of one block of Θ must be contiguous
            blocks = blocks.unflatten(-1, (problem.num_blocks, -1)).transpose(-3, -2).flatten(-2)
        return solve(factors.second, blocks.flatten(-2), theta)

    @staticmethod
    def _tall(problem: Problem) -> Tensor:
        """Θ for the second factor: (K₂, G, K₁·P/G, Q/G)."""
        return _by_pairs(problem).permute(1, 2, 0, 3, 4).flatten(2, 3)
