"""Orders without a sparse product: dense matrices, fully connected layers, and the identity."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...basis.eye import Eye, UnitMatrices
from ...kernels import REDUCTIONS
from ...kernels.absent_pairs import over_all_pairs
from ..cost import Operations, Steps, moving
from ..order import EdgeOrder, Order, needs_features
from ..problem import Problem
from ..rule import is_full


class Dense(EdgeOrder):
    """A as a dense tensor (K, M, N), and two dense products.

    Where X or a gradient holds NaN or infinity, or cannot be looked at, the product with A goes by
    its edges.
    """

    name = "dense"

    def rank_of_edges(self, problem: Problem) -> int:
        return -1 if is_full(problem) else 2

    def is_prepared(self, problem: Problem) -> bool:
        """Never: comparing E with M·N would tie a compiled graph to the sizes it is traced with."""
        return False

    def steps(self, problem: Problem) -> Steps:
        """K·M·N·min(P, Q) dense, and K·M·N numbers."""
        (sources, targets), of_basis = problem.basis.size, problem.gradients[2]
        places, first = float(problem.num_labels * sources * targets), problem.narrows
        width = problem.out_channels if first else problem.in_channels
        rows = float((sources if first else targets) * problem.num_labels * problem.num_columns)
        steps = Steps(problem)
        if first:
            steps.transform(rows)
        product = Operations(2.0 * places * width * problem.num_columns, calls=1)
        memory, between = places * problem.itemsize, rows * width * problem.itemsize
        # Each edge is written to a random place, which costs some cache lines, by three int64
        # indices.
        edges = float(problem.num_edges)
        put = Operations(moves=((256.0 * edges, memory),)) + moving(*(8.0 * edges,) * 3)
        steps.work("A as a tensor", moving(memory, between) + put, of_basis, memory + between)
        # The gradient of A is as large.
        steps.work("the product with A", product, steps.learns + of_basis, memory * of_basis)
        steps.learns = steps.learns or of_basis
        return steps if first else steps.theta(rows)

    def run(self, problem: Problem) -> Tensor:
        edges, first = problem.edges, problem.narrows
        rows = problem.transform() if first else problem.features

        def multiplied(rows: Tensor, value: Tensor | None) -> Tensor:
            matrix = edges.with_values(value).to_dense(rows.dtype).to(rows.dtype)  # (K, M, N)
            if first:
                flat = rows.transpose(0, 1).flatten(0, 1)  # (K·M, *batch, Q)
                out = (matrix.flatten(0, 1).t() @ flat.flatten(1)).to(rows.dtype)
                return out.view(out.size(0), *flat.shape[1:])
            h = (matrix.transpose(1, 2) @ rows.flatten(1)).transpose(0, 1)
            return h.unflatten(-1, rows.shape[1:])  # (N, K, *batch, P)

        def by_edges(rows: Tensor, value: Tensor | None) -> Tensor:
            basis = edges.with_values(value)
            return basis.gather(rows) if first else basis.propagate(rows)

        out = over_all_pairs(multiplied, by_edges, rows, edges.value)
        return out if first else problem.collect(out)


class FullyConnected(Order):
    """X as a row of M·P numbers times Θ as a matrix of M·P × N·Q, as in a linear layer.

    The basis has one label for each pair of a source and a target. A label has at most one edge
    into a target, so all reductions over the inputs of a label are equal.
    """

    name = "fully_connected"
    solves = (UnitMatrices,)
    reductions = frozenset(REDUCTIONS)
    needs = (needs_features,)

    def steps(self, problem: Problem) -> Steps:
        """M·N·P·Q dense, and a copy of Θ as one matrix."""
        memory = float(problem.parameter.shape.numel() * problem.itemsize)
        steps = Steps(problem).theta(float(problem.num_labels * problem.num_columns))
        return steps.work("Θ as one matrix", moving(memory), problem.gradients[1], memory)

    def run(self, problem: Problem) -> Tensor:
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


class PerNode(Order):
    """X Θ for the identity; rows of targets beyond the number of sources are zero."""

    name = "per_node"
    solves = (Eye,)
    reductions = frozenset(REDUCTIONS)

    def steps(self, problem: Problem) -> Steps:
        """min(M, N)·P·Q dense."""
        return Steps(problem).transform(float(min(problem.basis.size) * problem.num_columns))

    def run(self, problem: Problem) -> Tensor:
        num_sources, num_targets = problem.basis.size
        shared = min(num_sources, num_targets)
        x = problem.x[:shared] if isinstance(problem.x, Tensor) else problem.x
        out = Problem(problem.basis, x, problem.parameter).transform().squeeze(1)[:shared]
        missing = num_targets - shared
        return out if missing == 0 else F.pad(out, (0, 0) * (out.dim() - 1) + (0, missing))
