"""Contract polynomials p_k(A) by their recurrence: K − 1 sparse products, no powers of A.

If Θ mixes few matrices V_b, Σ_k p_k(A) c_kb is one polynomial for each V_b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...basis.polynomial import Polynomial, Step
from ...theta import DenseTheta, Mixture
from ..cost import Cost, Work, moving
from ..order import Order, needs_features, needs_mixture
from ..problem import Problem
from ..rule import has_few, transforms
from ..work import dense_product, sparse_product, transform


def recurrence_cost(
    problem: Problem,
    width: int,
    wanted: bool,
    products: tuple[Work, Work],
    keeps: bool,
    beside: int = 0,
) -> Cost:
    """The cost of K − 1 sparse products of a width, and of dense products.

    Args:
        problem: the problem.
        width: number of channels of the terms.
        wanted: whether the first term requires gradients; the others also do if the values of the
            operator do.
        products: forward and backward work of the dense products.
        keeps: whether autograd saves all terms; otherwise three are in memory at a time.
        beside: number of further tensors of the size of a term in memory.
    """
    basis = polynomial_of(problem)
    nodes, steps = basis.size[0], problem.num_labels - 1
    entries = float(basis.operator.num_edges)
    sparse, _ = sparse_product(problem, width, (nodes, nodes), wanted, entries)
    line = float(nodes * problem.num_columns * width * problem.itemsize)
    between = moving(line, line, line)
    # A is square: transposed products, and samples for the gradient of values, cost the same.
    of_basis = problem.gradients[2]
    transposed = steps if wanted else max(steps - 1, 0) * of_basis
    dense, dense_back = products
    back = (sparse + between) * transposed + sparse * (steps * of_basis) + dense_back
    factors = {basis.recurrence.first, basis.recurrence.alpha} - {1.0} if steps else set()
    held = line * ((steps + 2 if keeps else 3) + beside) + len(factors) * entries * problem.itemsize
    return Cost((sparse + between) * steps + dense, back, held)


def polynomial_of(problem: Problem) -> Polynomial:
    """The basis of the problem, with its type narrowed to :class:`Polynomial`."""
    return problem.of(Polynomial)


def step_of(problem: Problem) -> Step:
    """The function H ↦ s Aᵀ H of a polynomial, by sparse products."""
    return polynomial_of(problem).step(problem.dtype)


def terms_of(problem: Problem, step: Step) -> Iterator[Tensor]:
    """p_k(A)ᵀ X for k = 0, 1, …"""
    assert isinstance(problem.x, Tensor)  # lacks() requires it
    return polynomial_of(problem).terms(problem.x, step)


def sum_forward(problem: Problem, step: Step) -> Tensor:
    """Σ_k (p_k(A)ᵀ X) Θ_k + b, term by term."""
    out = problem.bias
    for k, h in enumerate(terms_of(problem, step)):
        out = problem.parameter.labels(k, k + 1).combine(h, h.size(0), out)
    assert out is not None  # a polynomial has a term
    return out


def sum_clenshaw(
    problem: Problem, step: Step, term: Callable[[int], Tensor] | None = None
) -> Tensor:
    """Σ_k p_k(A)ᵀ z_k as b_0 of b_k = z_k + s_k Aᵀ b_{k+1} − γ b_{k+2}.

    ``term(k)`` returns z_k; without it, z_k = X Θ_k.
    """
    rule, term = polynomial_of(problem).recurrence, term or problem.transform_label
    last: Tensor | None = None
    here: Tensor | None = None
    for k in reversed(range(problem.num_labels)):
        ahead = term(k)
        if here is not None:
            ahead = ahead + step(here, rule.first if k == 0 else rule.alpha)
        if last is not None and rule.gamma:
            ahead = torch.sub(ahead, last, alpha=rule.gamma)
        last, here = here, ahead
    assert here is not None
    return here


class Forward(Order):
    """p_k(A)ᵀ X in turn at width P, each multiplied by Θ_k at once."""

    name = "recurrence_forward"
    propagates = True
    solves = (Polynomial,)
    transforms = False
    adds_bias = True

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features."""
        return needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return int(transforms(problem) or has_few(problem))

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·P sparse, N·K·P·Q dense."""
        rows, terms = float(problem.basis.size[0] * problem.num_columns), problem.num_labels
        of_x, of_theta, of_basis = problem.gradients
        forward, back = dense_product(problem, rows * terms, of_x, terms)
        if of_basis and not of_x:  # all terms but the first, X, require gradients
            back = back + dense_product(problem, rows * (terms - 1), False, terms - 1)[0]
        keeps = of_theta or of_basis
        return recurrence_cost(problem, problem.in_channels, of_x, (forward, back), keeps)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        return sum_forward(problem, step_of(problem))


class Clenshaw(Order):
    """Σ_k p_k(A)ᵀ (X Θ_k) from the last label to the first, at width Q (Horner for powers).

    Clenshaw, *A note on the summation of Chebyshev series*, 1955.
    """

    name = "recurrence_clenshaw"
    solves = (Polynomial,)
    transforms = True

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
        return int(not transforms(problem) or has_few(problem))

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·Q sparse, N·K·P·Q dense."""
        rows = float(problem.basis.size[0] * problem.num_labels * problem.num_columns)
        of_x, of_theta, of_basis = problem.gradients
        products = transform(problem, rows)
        return recurrence_cost(problem, problem.out_channels, of_x or of_theta, products, of_basis)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        return sum_clenshaw(problem, step_of(problem))


def _mixture(problem: Problem) -> Mixture:
    assert problem.mixture is not None  # lacks() requires it
    return problem.mixture


def _of_matrices(problem: Problem) -> Problem:
    """The problem with the matrices V_b as Θ."""
    return Problem(problem.basis, problem.x, DenseTheta(_mixture(problem).matrices))


def _is_free(problem: Problem) -> bool:
    """Whether products with V_b can be skipped: V = I, and X is dense."""
    return _mixture(problem).is_unit and problem.has_features


def _sums(problem: Problem, width: int) -> Work:
    """The work of one weighted sum of B terms for each label.

    The cost of a dense product does not count that its result is written. For a fair comparison
    only the terms after the first count here.
    """
    line = float(problem.basis.size[0] * problem.num_columns * width * problem.itemsize)
    further = _mixture(problem).num_matrices - 1
    return moving(*[line] * further) * problem.num_labels


class ForwardMixed(Order):
    """Σ_b (Σ_k c_kb p_k(A)ᵀ X) V_b: terms at width P, summed at once.

    B dense products, not K; none if V = I.
    """

    name = "recurrence_forward_mixed"
    solves = (Polynomial,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires Θ as a mixture, and dense features."""
        return needs_mixture(problem) + needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
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
        """Y (N, *batch, Q)."""
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

    Each X V_b is computed once, instead of X Θ_k for each label; for V = I it is X.
    """

    name = "recurrence_clenshaw_mixed"
    solves = (Polynomial,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires Θ as a mixture."""
        return needs_mixture(problem)

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule of ``rule.py`` chooses it, else 1."""
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
        """Y (N, *batch, Q)."""
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
