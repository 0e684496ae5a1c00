"""Polynomials with few matrices: Σ_k p_k(A) c_kb is one polynomial for each V_b, not K products."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis.polynomial import Polynomial
from ...theta import DenseTheta, Mixture
from ..cost import Cost, Work, moving
from ..order import Order, needs_features, needs_mixture
from ..problem import Problem
from ..rule import has_few, transforms
from ..work import dense_product, transform
from .recurrence import recurrence_cost, step_of, sum_clenshaw, terms_of


def _mixture(problem: Problem) -> Mixture:
    assert problem.mixture is not None  # why_not
    return problem.mixture


def _of_matrices(problem: Problem) -> Problem:
    """The problem with the matrices V_b in the place of Θ, whose products are what is needed."""
    return Problem(problem.basis, problem.x, DenseTheta(_mixture(problem).matrices))


def _is_free(problem: Problem) -> bool:
    """Whether there is nothing to multiply with: V = I, and rows to take as they are."""
    return _mixture(problem).is_unit and problem.has_features


def _sums(problem: Problem, width: int) -> Work:
    """The work of one weighted sum of B terms for each label.

    Of a dense product's result nobody counts that it is written; here likewise, so that the two
    compare, and only the terms past the first count.
    """
    line = float(problem.basis.size[0] * problem.num_columns * width * problem.itemsize)
    further = _mixture(problem).num_matrices - 1
    return moving(*[line] * further) * problem.num_labels


class ForwardMixed(Order):
    """Σ_b (Σ_k c_kb p_k(A)ᵀ X) V_b: powers at width P, added up as soon as they are there.

    B dense products, not K; none where V = I.
    """

    name = "recurrence_forward_mixed"
    solves = (Polynomial,)

    def lacks(self, problem: Problem) -> list[str]:
        """It needs a mixture of matrices, and features."""
        return needs_mixture(problem) + needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """By the plain rule."""
        return int(transforms(problem) or not has_few(problem))

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·P sparse, N·B·P·Q dense, K·B·N·P sums."""
        mixture, (of_x, _, of_basis) = _mixture(problem), problem.gradients
        count = mixture.num_matrices
        learns = mixture.coefficient.requires_grad and torch.is_grad_enabled()
        wanted = of_x or of_basis or learns
        rows = float(problem.basis.size[0] * problem.num_columns * count)
        forward, back = Work(), Work()
        if not _is_free(problem):
            forward, back = dense_product(_of_matrices(problem), rows, wanted)
        sums = _sums(problem, problem.in_channels)
        products, keeps = (forward + sums, back + sums * wanted), of_basis or learns
        return recurrence_cost(problem, problem.in_channels, of_x, products, keeps, count)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        total: Tensor | None = None  # (N, B, *batch, P)
        coefficient = _mixture(problem).coefficient
        for k, h in enumerate(terms_of(problem, step_of(problem))):
            weight = coefficient[k].to(h.dtype).view(-1, *[1] * (h.dim() - 1))
            h = h.unsqueeze(1)
            total = h * weight if total is None else torch.addcmul(total, h, weight)
        assert total is not None  # a polynomial has a term
        return total.squeeze(1) if _is_free(problem) else _of_matrices(problem).collect(total)


class ClenshawMixed(Order):
    """Σ_k p_k(A)ᵀ Σ_b c_kb (X V_b), from the last label to the first, at width Q.

    Each X V_b is made once, not a X Θ_k for each label; with V = I it is X.
    """

    name = "recurrence_clenshaw_mixed"
    solves = (Polynomial,)

    def lacks(self, problem: Problem) -> list[str]:
        """It needs a mixture of matrices."""
        return needs_mixture(problem)

    def rank(self, problem: Problem) -> int:
        """By the plain rule."""
        return int(not transforms(problem) or not has_few(problem))

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·Q sparse, M·B·P·Q dense, K·B·N·Q sums."""
        of_x, of_theta, of_basis = problem.gradients
        count = _mixture(problem).num_matrices
        rows = float(problem.basis.size[0] * problem.num_columns * count)
        forward, back = Work(), Work()
        if not _is_free(problem):
            forward, back = transform(_of_matrices(problem), rows)
        sums, wanted = _sums(problem, problem.out_channels), of_x or of_theta
        products = (forward + sums, back + sums * wanted)
        return recurrence_cost(problem, problem.out_channels, wanted, products, of_basis, count)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        if _is_free(problem):
            assert isinstance(problem.x, Tensor)
            z = problem.x.unsqueeze(1)
        else:
            z = _of_matrices(problem).transform()  # (M, B, *batch, Q)
        coefficient = _mixture(problem).coefficient.to(z.dtype)

        def term(k: int) -> Tensor:
            total = z[:, 0] * coefficient[k, 0]
            for b in range(1, z.size(1)):
                total = torch.addcmul(total, z[:, b], coefficient[k, b])
            return total

        return sum_clenshaw(problem, step_of(problem), term)
