"""Mix labels first: if Θ mixes few matrices, mix values of edges instead, matrix by matrix."""

from __future__ import annotations

from torch import Tensor

from ...kernels.mixed_product import mixed_product
from ...theta import DenseTheta
from ..cost import Cost, moving
from ..order import EXPLICIT, Order, has_made, needs_mixture
from ..problem import Problem
from ..rule import is_plain, mixes
from ..work import dense_product, sparse_product, transform


class LabelMixing(Order):
    """Σ_b (Σ_k c_kb A_k)ᵀ X V_b for Θ_k = Σ_b c_kb V_b: B sparse products over all edges, not K.

    The values of one b at a time are computed, and again in the backward pass: E numbers, not E·B.
    """

    name = "label_mixing"
    solves = EXPLICIT

    def lacks(self, problem: Problem) -> list[str]:
        """Requires Θ as a mixture."""
        return needs_mixture(problem)

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return -1 if is_plain(problem) and mixes(problem) else 1

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "ends", "by_label")

    def cost(self, problem: Problem) -> Cost:
        """M·B·P·Q dense, B·E·min(P, Q) sparse, M·min(P, Q) for each b, and E numbers."""
        assert problem.mixture is not None  # lacks() requires it
        count = problem.mixture.num_matrices
        of_x, of_theta, of_basis = problem.gradients
        transforms = problem.narrows
        width = problem.out_channels if transforms else problem.in_channels
        sources, targets = problem.basis.size
        line = problem.num_columns * problem.itemsize
        rows = sources if transforms else targets
        wanted = of_x or of_theta
        rows_of_all = float(rows * problem.num_columns)
        if transforms:
            one = Problem(problem.basis, problem.x, DenseTheta(problem.mixture.matrices[:1]))
            dense, dense_back = transform(one, rows_of_all)
        else:
            dense, dense_back = dense_product(problem, rows_of_all, wanted or of_basis)
        inner = wanted if transforms else of_x
        sparse, sparse_back = sparse_product(problem, width, (sources, targets), inner)
        # The gradient of the coefficients samples products at all edges, like that of values.
        if of_theta and not of_basis:
            sparse_back = sparse_back + sparse
        edges = float(problem.num_edges * problem.itemsize)
        mixed = moving(edges, edges, float(rows * width * line))
        back = (dense_back + sparse_back + mixed + mixed) * float(wanted or of_basis)
        kept = rows * width * line * (count if wanted or of_basis else 1)
        return Cost((dense + sparse + mixed) * count, back * count, 2.0 * edges + kept)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        mixture, edges = problem.mixture, problem.edges
        assert mixture is not None  # lacks() requires it
        pattern, out = edges.pattern, None
        entries = pattern.ends, pattern.label, pattern.by_label, edges.value
        for number in range(mixture.num_matrices):
            coefficient = mixture.coefficient[:, number]
            matrix = DenseTheta(mixture.matrices[number : number + 1])
            one = Problem(problem.basis, problem.x, matrix)
            if problem.narrows:
                part = mixed_product(*entries, coefficient, one.transform().squeeze(1))
            else:
                assert isinstance(problem.x, Tensor)
                h = mixed_product(*entries, coefficient, problem.x)
                part = h if mixture.is_unit else one.collect(h.unsqueeze(1))
            out = part if out is None else out + part
        assert out is not None  # needs_mixture: at least one matrix
        return out
