"""Lower explicit edges to a dense matrix, if they fill enough of it."""

from __future__ import annotations

from torch import Tensor

from ..cost import Cost, Work, moving
from ..order import EXPLICIT, Order
from ..problem import Problem
from ..rule import is_full, is_plain
from ..work import dense_product, transform


class Dense(Order):
    """A as a dense tensor (K, M, N), and two dense products."""

    name = "dense"
    solves = EXPLICIT

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        if not is_plain(problem):
            return 1
        return -1 if is_full(problem) else 2

    def is_prepared(self, problem: Problem) -> bool:
        """Never: comparing E with M·N would tie a compiled graph to the sizes it is traced with."""
        return False

    def cost(self, problem: Problem) -> Cost:
        """K·M·N·min(P, Q) dense, and K·M·N numbers."""
        of_x, of_theta, of_basis = problem.gradients
        sources, targets = problem.basis.size
        places = float(problem.num_labels * sources * targets)
        transforms = problem.narrows
        width = problem.out_channels if transforms else problem.in_channels
        rows = float((sources if transforms else targets) * problem.num_labels)
        rows *= problem.num_columns
        wanted = of_x or (of_theta and transforms)
        if transforms:
            theta, theta_back = transform(problem, rows)
        else:
            theta, theta_back = dense_product(problem, rows, of_x or of_basis)
        matrix = Work(dense_flops=2.0 * places * width * problem.num_columns, calls=1)
        held = places * problem.itemsize
        between = rows * width * problem.itemsize
        # Each edge is written to a random place, which costs some cache lines, by three int64
        # indices.
        edges = float(problem.num_edges)
        put = Work(moves=((256.0 * edges, held),)) + moving(*(8.0 * edges,) * 3)
        made = moving(held, between) + put
        back = theta_back + matrix * (wanted + of_basis) + made * of_basis
        # The gradient of the matrix is as large as the matrix.
        return Cost(made + matrix + theta, back, held * (1 + of_basis) + between)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        sources, targets = problem.basis.size
        if problem.narrows:
            z = problem.transform()
            matrix = problem.edges.to_dense(z.dtype).to(z.dtype)  # (K, M, N)
            width = problem.num_columns * problem.out_channels
            by_label = z.transpose(0, 1).reshape(problem.num_labels * sources, width)
            # Rows that were looked up have Θ's dtype also under autocast, so the result has too.
            out = (matrix.flatten(0, 1).t() @ by_label).to(z.dtype)
            return out.view(targets, *problem.batch, problem.out_channels)
        assert isinstance(problem.x, Tensor)
        x = problem.x.flatten(1)
        matrix = problem.edges.to_dense(x.dtype).to(x.dtype)
        h = (matrix.transpose(1, 2) @ x).transpose(0, 1)  # (N, K, columns)
        return problem.collect(h.unflatten(-1, (*problem.batch, problem.in_channels)))
