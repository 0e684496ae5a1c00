"""One dense product X Θ_k, then one sparse product over all edges.

The rows are all (source, label) pairs, or only those with edges (the compact form).
"""

from __future__ import annotations

from torch import Tensor

from ...basis.edges import multiply
from ...graph.sparse_features import SparseFeatures
from ..cost import Cost, moving, picking_in_turn
from ..order import EXPLICIT, Order, each_of_batch, grouped, has_made, needs_grouped_products
from ..problem import Problem
from ..rule import rank_of_form
from ..work import sparse_product, transform


class TransformFirst(Order):
    """Σ_k A_kᵀ (X Θ_k): cheap if Q < P or K is small."""

    name = "transform_first"
    solves = EXPLICIT
    transforms = True

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return rank_of_form(problem, first=True, compact=False)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
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
        """Y (N, *batch, Q)."""
        return problem.basis.edges().gather(problem.transform())


class TransformFirstCompact(Order):
    """Σ_k A_kᵀ (X Θ_k) over (source, label) pairs with edges: cheap if K is large.

    Compact materialisation: Wu et al., *Hector*, section 3.
    """

    name = "transform_first_compact"
    solves = EXPLICIT

    def lacks(self, problem: Problem) -> list[str]:
        """Requires X that is not sparse, and grouped products."""
        reasons = []
        if isinstance(problem.x, SparseFeatures):
            reasons.append("needs dense features or indices to take rows of X")
        return reasons + (needs_grouped_products() if problem.has_features else [])

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return rank_of_form(problem, first=True, compact=True)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "source_pairs", "num_source_pairs")

    def cost(self, problem: Problem) -> Cost:
        """U_in·P·Q dense in K groups, E·Q sparse, U_in·Q numbers."""
        of_x, of_theta, _ = problem.gradients
        pairs, targets = float(problem.num_source_pairs), problem.basis.size[1]
        rows = pairs * problem.num_columns
        held = rows * problem.out_channels * problem.itemsize
        read = rows * problem.in_channels * problem.itemsize
        first, first_back = transform(problem, rows)
        taken = picking_in_turn(
            read if problem.has_features else 0.0,
            problem.num_labels * problem.num_blocks,
        )
        wanted = of_x or of_theta
        then, then_back = sparse_product(problem, problem.out_channels, (pairs, targets), wanted)
        # Blocks of Θ are multiplied one by one, and their results concatenated.
        between = moving(held) * (1 + (problem.num_blocks > 1))
        return Cost(
            first + taken + between + then,
            then_back + between * wanted + first_back + taken * (of_x + of_theta),
            held,
        )

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        edges, theta = problem.edges, problem.theta
        pairs = edges.pattern.source_pairs
        x = problem.x
        if isinstance(x, Tensor) and x.is_floating_point():
            return each_of_batch(
                problem,
                lambda item: multiply(
                    pairs.sparsity, edges, grouped(item, pairs.ptr, theta, gather=pairs.node)
                ),
            )
        # Row m of X Θ_k is a row of Θ_k.
        node = pairs.node.long()
        row = node if x is None else x.index_select(0, node)  # type: ignore[union-attr]
        label = _label_of(pairs.ptr, node)
        z = theta[:, 0].flatten(0, 1).index_select(0, label * theta.size(2) + row)
        return multiply(pairs.sparsity, edges, z)


def _label_of(ptr: Tensor, pairs: Tensor) -> Tensor:
    """The label of each (source, label) pair, (U,)."""
    labels = pairs.new_ones(ptr.numel() - 1).cumsum(0) - 1
    return labels.repeat_interleave(ptr.diff().long(), output_size=pairs.numel())
