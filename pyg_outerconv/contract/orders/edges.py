"""Orders for explicit edges that take all K labels in one sparse product.

The result between the two products has a row for each (node, label) pair, or only for pairs with
edges: the compact form, the compact materialisation of Wu et al., *Hector*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...basis.edges import multiply
from ...graph.sparse_matrix import SparseMatrix
from ...kernels import REDUCTIONS
from ...kernels.dispatch import forced, get_backend
from ...kernels.grouped import known_groups
from ...theta import autocast_pair
from ..cost import (
    Cost,
    Operations,
    dense_product,
    moving,
    picking_in_turn,
    sparse_product,
    transform,
)
from ..order import EXPLICIT, EdgeOrder, needs_features, needs_identity
from ..problem import Problem
from ..rule import rank_of_form


class PropagateFirst(EdgeOrder):
    """Σ_k (A_kᵀ X) Θ_k: cheap if P < Q."""

    name = "propagate_first"
    propagates = True
    transforms = False
    adds_bias = True
    reductions = frozenset(REDUCTIONS)
    needs = (needs_features,)
    reads = ("by_target_label",)

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, theta_first=False, compact=False)

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, N·K·P·Q dense, N·K·P numbers."""
        return _propagating(problem, float(problem.basis.size[1] * problem.num_labels))

    def run(self, problem: Problem) -> Tensor:
        basis = problem.basis
        assert isinstance(problem.x, Tensor)  # it needs features
        assert isinstance(basis, EXPLICIT)  # it solves no other
        h = basis.propagate_rows(problem.x, problem.aggr, problem.few)
        return problem.parameter.combine(h, basis.size[1], problem.bias)


def _propagating(problem: Problem, pairs: float, copies: int = 1) -> Cost:
    """The cost of A_kᵀ X for (target, label) pairs, then of Θ."""
    wanted, _, of_basis = problem.gradients
    rows, learns = pairs * problem.num_columns, wanted or of_basis
    held = rows * problem.in_channels * problem.itemsize
    return (
        sparse_product(problem, problem.in_channels, (problem.basis.size[0], pairs), wanted)
        + Cost.of(moving(held) * copies, learns, held)
        + dense_product(problem, rows, learns)
    )


class TransformFirst(EdgeOrder):
    """Σ_k A_kᵀ (X Θ_k): cheap if Q < P or K is small."""

    name = "transform_first"
    transforms = True
    reads = ("by_target",)

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, theta_first=True, compact=False)

    def cost(self, problem: Problem) -> Cost:
        """M·K·P·Q dense, E·Q sparse, M·K·Q numbers."""
        return _transforming(problem, float(problem.basis.size[0] * problem.num_labels))

    def run(self, problem: Problem) -> Tensor:
        z, x, basis = problem.transform(), problem.x, problem.basis
        assert isinstance(basis, EXPLICIT)  # it solves no other
        # Autocast makes z of another type than the plan was made for.
        few = problem.few if isinstance(x, Tensor) and x.dtype == z.dtype else None
        return basis.gather(z, few)


def _transforming(problem: Problem, pairs: float, copies: int = 1) -> Cost:
    """The cost of X Θ_k for (source, label) pairs, then of A_kᵀ."""
    rows, wanted = pairs * problem.num_columns, any(problem.gradients[:2])
    held = rows * problem.out_channels * problem.itemsize
    return (
        transform(problem, rows)
        + Cost.of(moving(held) * copies, wanted, held)
        + sparse_product(problem, problem.out_channels, (pairs, problem.basis.size[1]), wanted)
    )


# Compact forms -----------------------------------------------------------------------------------


def _needs_grouped_products(problem: Problem) -> list[str]:
    """A reason if the requested backend has no grouped products, which features need."""
    asked = forced()
    if not problem.has_features or asked is None:
        return []
    if "grouped_matmul" in get_backend(asked).primitives:
        return []
    return [f"needs the primitive grouped_matmul, which the backend {asked!r} does not have"]


def _needs_rows(problem: Problem) -> list[str]:
    if isinstance(problem.x, SparseMatrix):
        return ["needs dense features or indices to take rows of X"]
    return []


class PropagateFirstCompact(EdgeOrder):
    """Σ_k (A_kᵀ X) Θ_k over (target, label) pairs with edges: cheap if K is large."""

    name = "propagate_first_compact"
    reductions = frozenset(REDUCTIONS)
    needs = (needs_features, _needs_grouped_products)
    reads = ("target_pairs", "num_target_pairs")

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, theta_first=False, compact=True)

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, U_out·P·Q dense in K groups, U_out·P numbers."""
        pairs, (wanted, of_theta, of_basis) = float(problem.num_target_pairs), problem.gradients
        # Each block of Θ takes a copy of its columns, and values are copied in the order of pairs.
        copies = 1 + (problem.num_blocks > 1)
        copied = problem.num_edges * problem.itemsize * problem.has_values
        put = _picking(problem, pairs * problem.out_channels)
        learns = wanted or of_basis
        return _propagating(problem, pairs, copies) + Cost.of(put, learns + of_theta, copied)

    def run(self, problem: Problem) -> Tensor:
        edges, theta, num_targets = problem.edges, problem.theta, problem.basis.size[1]
        pairs = edges.pattern.target_pairs

        def run(item: Tensor) -> Tensor:
            h = multiply(pairs.csr, edges, item, pairs.order, problem.aggr)
            return grouped(h, pairs.ptr, theta, scatter=pairs.node, num_rows=num_targets)

        return each_of_batch(problem, run)


class TransformFirstCompact(EdgeOrder):
    """Σ_k A_kᵀ (X Θ_k) over (source, label) pairs with edges: cheap if K is large."""

    name = "transform_first_compact"
    needs = (_needs_rows, _needs_grouped_products)
    reads = ("source_pairs", "num_source_pairs")

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, theta_first=True, compact=True)

    def cost(self, problem: Problem) -> Cost:
        """U_in·P·Q dense in K groups, E·Q sparse, U_in·Q numbers."""
        pairs, (of_x, of_theta, _) = float(problem.num_source_pairs), problem.gradients
        # Blocks of Θ are multiplied one by one, and their results concatenated.
        copies = 1 + (problem.num_blocks > 1)
        taken = _picking(problem, pairs * problem.in_channels * problem.has_features)
        return _transforming(problem, pairs, copies) + Cost.of(taken, of_x + of_theta)

    def run(self, problem: Problem) -> Tensor:
        edges, theta, x = problem.edges, problem.theta, problem.x
        pairs = edges.pattern.source_pairs
        if problem.has_features:
            return each_of_batch(
                problem,
                lambda item: multiply(
                    pairs.csr, edges, grouped(item, pairs.ptr, theta, gather=pairs.node)
                ),
            )
        # Row m of X Θ_k is a row of Θ_k.
        node = pairs.node.long()
        row = x.index_select(0, node) if isinstance(x, Tensor) else node
        labels = node.new_ones(pairs.ptr.numel() - 1).cumsum(0) - 1
        label = labels.repeat_interleave(pairs.ptr.diff().long(), output_size=node.numel())
        z = theta[:, 0].flatten(0, 1).index_select(0, label * theta.size(2) + row)
        return multiply(pairs.csr, edges, z)


def _picking(problem: Problem, numbers: float) -> Operations:
    """Rows of ``numbers`` for each item of the batch, gathered or scattered label by label."""
    size = numbers * problem.num_columns * problem.itemsize
    return picking_in_turn(size, problem.num_labels * problem.num_blocks)


def each_of_batch(problem: Problem, run: Callable[[Tensor], Tensor]) -> Tensor:
    """``run`` on every (M, P) of a batch (M, *batch, P): (N, *batch, Q)."""
    x = problem.features
    if x.dim() == 2:
        return run(x)
    wide = x.flatten(1, -2)
    if wide.size(1) == 0:  # an empty batch, whose result still needs a gradient function
        return run(wide.sum(1)).unsqueeze(1)[:, :0].unflatten(1, problem.batch)
    out = torch.stack([run(item) for item in wide.unbind(1)], dim=1)
    return out.unflatten(1, problem.batch)


def grouped(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """:func:`.grouped_matmul` with Θ (K, G, P/G, Q/G), a matrix for each label; block-diagonal.

    Under autocast it runs in autocast's dtype, like a dense product.
    """
    x, theta = autocast_pair(x, theta)
    if theta.size(1) == 1:
        return known_groups(x, ptr, theta[:, 0], gather, scatter, num_rows)
    blocks = x.unflatten(-1, theta.shape[1:3]).unbind(1)
    outs = [
        known_groups(block, ptr, theta[:, number], gather, scatter, num_rows)
        for number, block in enumerate(blocks)
    ]
    return torch.cat(outs, dim=-1)


# One set of edges --------------------------------------------------------------------------------


def _needs_one_reduction(problem: Problem) -> list[str]:
    if problem.aggr == problem.label_aggr or needs_features(problem) or needs_identity(problem):
        return []
    if problem.is_one_each:  # last, because it counts pairs
        return []
    return [
        f"needs one reduction, or at most one edge for each target and label, not "
        f"{problem.aggr} within labels, then {problem.label_aggr}"
    ]


class AllEdges(EdgeOrder):
    """reduce_{k, m} A_k[m, n] X[m] for Θ_k = I: edges of all labels are one set.

    Inputs and labels must have the same reduction, unless each (target, label) has at most one edge
    (pooling). Sums also allow Θ_k = c I. Of equal entries the one with the lowest label takes the
    gradient.
    """

    name = "all_edges"
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"sum", "max", "min"})
    needs = (needs_features, needs_identity, _needs_one_reduction)
    reads = ("ends",)

    def rank_of_edges(self, problem: Problem) -> int:
        """Best, because it does not tell labels apart."""
        return -2

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse; for max and min also the index of the winning edge, N·P numbers."""
        of_x, _, of_basis = problem.gradients
        width, (sources, targets) = problem.in_channels, problem.basis.size
        product = sparse_product(problem, width, (sources, targets), of_x)
        if problem.label_aggr == "sum":
            return product
        # Winning edges are looked up, and their gradients scattered, row by row of the result.
        rows = float(targets * width * problem.num_columns)
        pick = rows * problem.itemsize, float(sources * width * problem.itemsize)
        found = Operations(picks=(pick,), moves=((8.0 * rows, 8.0 * rows),) * 3, calls=6)
        held = 16.0 * rows + 8.0 * problem.num_edges  # indices of torch are int64
        return product + Cost.of(found, of_x + of_basis, held)

    def run(self, problem: Problem) -> Tensor:
        edges, factor = problem.edges, problem.factor
        out = multiply(edges.pattern.ends, edges, problem.features, aggr=problem.label_aggr)
        return out if factor is None or factor == 1.0 else out * factor
