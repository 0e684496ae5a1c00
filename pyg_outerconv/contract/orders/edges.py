"""Orders over edges of all labels at once: propagate first, transform first, or one set of edges.

Rows between the two products are all (node, label) pairs, or only those with edges: the compact
form, the compact materialisation of Wu et al., *Hector*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...basis.edges import multiply
from ...graph.sparse_features import SparseFeatures
from ...kernels import REDUCTIONS
from ...kernels.dispatch import forced, get_backend
from ...kernels.grouped import known_groups
from ...theta.theta import autocast_pair
from ..cost import (
    Cost,
    Operations,
    dense_product,
    moving,
    picking_in_turn,
    sparse_product,
    transform,
)
from ..order import EdgeOrder, needs_features, needs_identity
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
        return rank_of_form(problem, first=False, compact=False)

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, N·K·P·Q dense, N·K·P numbers."""
        (sources, targets), (wanted, _, of_basis) = problem.basis.size, problem.gradients
        rows = float(targets * problem.num_labels)
        held = rows * problem.num_columns * problem.in_channels * problem.itemsize
        learns = wanted or of_basis
        return (
            sparse_product(problem, problem.in_channels, (sources, rows), wanted)
            + Cost.of(moving(held), learns, held)
            + dense_product(problem, rows * problem.num_columns, learns)
        )

    def run(self, problem: Problem) -> Tensor:
        assert isinstance(problem.x, Tensor)  # it needs features
        basis = problem.basis.edges()
        h = basis.propagate_rows(problem.x, problem.aggr)
        return problem.parameter.combine(h, basis.size[1], problem.bias)


class TransformFirst(EdgeOrder):
    """Σ_k A_kᵀ (X Θ_k): cheap if Q < P or K is small."""

    name = "transform_first"
    transforms = True
    reads = ("by_target",)

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, first=True, compact=False)

    def cost(self, problem: Problem) -> Cost:
        """M·K·P·Q dense, E·Q sparse, M·K·Q numbers."""
        (sources, targets), wanted = problem.basis.size, any(problem.gradients[:2])
        rows = float(sources * problem.num_labels)
        held = rows * problem.num_columns * problem.out_channels * problem.itemsize
        return (
            transform(problem, rows * problem.num_columns)
            + Cost.of(moving(held), wanted, held)
            + sparse_product(problem, problem.out_channels, (rows, targets), wanted)
        )

    def run(self, problem: Problem) -> Tensor:
        return problem.basis.edges().gather(problem.transform())


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
    if isinstance(problem.x, SparseFeatures):
        return ["needs dense features or indices to take rows of X"]
    return []


class PropagateFirstCompact(EdgeOrder):
    """Σ_k (A_kᵀ X) Θ_k over (target, label) pairs with edges: cheap if K is large."""

    name = "propagate_first_compact"
    reductions = frozenset(REDUCTIONS)
    needs = (needs_features, _needs_grouped_products)
    reads = ("target_pairs", "num_target_pairs")

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, first=False, compact=True)

    def cost(self, problem: Problem) -> Cost:
        """E·P sparse, U_out·P·Q dense in K groups, U_out·P numbers."""
        pairs, sources = float(problem.num_target_pairs), problem.basis.size[0]
        rows = pairs * problem.num_columns
        held = rows * problem.in_channels * problem.itemsize
        blocks = 1 + (problem.num_blocks > 1)  # each block of Θ takes a copy of its columns
        put = picking_in_turn(
            rows * problem.out_channels * problem.itemsize,
            problem.num_labels * problem.num_blocks,
        )
        copied = problem.num_edges * problem.itemsize * problem.has_values  # in the order of pairs
        wanted, of_theta, of_basis = problem.gradients
        learns = wanted or of_basis
        return (
            sparse_product(problem, problem.in_channels, (sources, pairs), wanted)
            + Cost.of(moving(held) * blocks, learns, held + copied)
            + dense_product(problem, rows, learns)
            + Cost.of(put, learns + of_theta)
        )

    def run(self, problem: Problem) -> Tensor:
        edges, theta, num_targets = problem.edges, problem.theta, problem.basis.size[1]
        pairs = edges.pattern.target_pairs

        def run(item: Tensor) -> Tensor:
            h = multiply(pairs.sparsity, edges, item, pairs.order, problem.aggr)
            return grouped(h, pairs.ptr, theta, scatter=pairs.node, num_rows=num_targets)

        return each_of_batch(problem, run)


class TransformFirstCompact(EdgeOrder):
    """Σ_k A_kᵀ (X Θ_k) over (source, label) pairs with edges: cheap if K is large."""

    name = "transform_first_compact"
    needs = (_needs_rows, _needs_grouped_products)
    reads = ("source_pairs", "num_source_pairs")

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, first=True, compact=True)

    def cost(self, problem: Problem) -> Cost:
        """U_in·P·Q dense in K groups, E·Q sparse, U_in·Q numbers."""
        of_x, of_theta, _ = problem.gradients
        pairs, targets = float(problem.num_source_pairs), problem.basis.size[1]
        rows = pairs * problem.num_columns
        held = rows * problem.out_channels * problem.itemsize
        read = rows * problem.in_channels * problem.itemsize * problem.has_features
        taken = picking_in_turn(read, problem.num_labels * problem.num_blocks)
        # Blocks of Θ are multiplied one by one, and their results concatenated.
        between = moving(held) * (1 + (problem.num_blocks > 1))
        wanted = of_x or of_theta
        return (
            transform(problem, rows)
            + Cost.of(taken, of_x + of_theta)
            + Cost.of(between, wanted, held)
            + sparse_product(problem, problem.out_channels, (pairs, targets), wanted)
        )

    def run(self, problem: Problem) -> Tensor:
        edges, theta, x = problem.edges, problem.theta, problem.x
        pairs = edges.pattern.source_pairs
        if problem.has_features:
            return each_of_batch(
                problem,
                lambda item: multiply(
                    pairs.sparsity, edges, grouped(item, pairs.ptr, theta, gather=pairs.node)
                ),
            )
        # Row m of X Θ_k is a row of Θ_k.
        node = pairs.node.long()
        row = x.index_select(0, node) if isinstance(x, Tensor) else node
        labels = node.new_ones(pairs.ptr.numel() - 1).cumsum(0) - 1
        label = labels.repeat_interleave(pairs.ptr.diff().long(), output_size=node.numel())
        z = theta[:, 0].flatten(0, 1).index_select(0, label * theta.size(2) + row)
        return multiply(pairs.sparsity, edges, z)


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
