"""One sparse product A_kᵀ X, then one dense product with Θ.

The rows are all (target, label) pairs, or only those with edges (the compact form).
"""

from __future__ import annotations

from torch import Tensor

from ...basis.edges import multiply
from ...kernels import REDUCTIONS
from ..cost import Cost, moving, picking_in_turn
from ..order import (
    EXPLICIT,
    Order,
    each_of_batch,
    grouped,
    has_made,
    needs_features,
    needs_grouped_products,
)
from ..problem import Problem
from ..rule import rank_of_form
from ..work import dense_product, sparse_product


class PropagateFirst(Order):
    """Σ_k (A_kᵀ X) Θ_k: cheap if P < Q."""

    name = "propagate_first"
    propagates = True
    solves = EXPLICIT
    transforms = False
    adds_bias = True
    reductions = frozenset(REDUCTIONS)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features."""
        return needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return rank_of_form(problem, first=False, compact=False)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
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
        """Y (N, *batch, Q)."""
        assert isinstance(problem.x, Tensor)  # lacks() requires it
        basis = problem.basis.edges()
        h = basis.propagate_rows(problem.x, problem.reduce)
        return problem.parameter.combine(h, basis.size[1], problem.bias)


class PropagateFirstCompact(Order):
    """Σ_k (A_kᵀ X) Θ_k over (target, label) pairs with edges: cheap if K is large."""

    name = "propagate_first_compact"
    solves = EXPLICIT
    reductions = frozenset(REDUCTIONS)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features and grouped products."""
        return needs_features(problem) + needs_grouped_products()

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return rank_of_form(problem, first=False, compact=True)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "target_pairs", "num_target_pairs")

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, U_out·P·Q dense in K groups, U_out·P numbers."""
        pairs, sources = float(problem.num_target_pairs), problem.basis.size[0]
        rows = pairs * problem.num_columns
        between = moving(rows * problem.in_channels * problem.itemsize)
        held = between.moved
        if problem.has_values:  # copied into the order of the pairs
            held += problem.num_edges * problem.itemsize
        wanted, of_theta, of_basis = problem.gradients
        first, first_back = sparse_product(problem, problem.in_channels, (sources, pairs), wanted)
        deep = wanted or of_basis
        then, then_back = dense_product(problem, rows, deep)
        line = problem.out_channels * problem.itemsize
        put = picking_in_turn(rows * line, problem.num_labels * problem.num_blocks)
        blocks = 1 + (problem.num_blocks > 1)  # each block of Θ takes a copy of its columns
        return Cost(
            first + between * blocks + then + put,
            then_back + between * (blocks * deep) + put * (deep + of_theta) + first_back,
            held,
        )

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        edges, theta, num_targets = problem.edges, problem.theta, problem.basis.size[1]
        pairs = edges.pattern.target_pairs

        def run(item: Tensor) -> Tensor:
            h = multiply(pairs.sparsity, edges, item, pairs.order, problem.reduce)
            return grouped(h, pairs.ptr, theta, scatter=pairs.node, num_rows=num_targets)

        return each_of_batch(problem, run)
