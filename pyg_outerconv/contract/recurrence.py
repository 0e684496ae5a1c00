"""Polynomials by their recurrence: K − 1 sparse products, no power is ever made."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..basis.polynomial import Polynomial
from .order import Cost, Order, multiply
from .problem import Problem


def _why_not(problem: Problem) -> list[str]:
    if not isinstance(problem.basis, Polynomial):
        return [f"needs a polynomial, not a {type(problem.basis).__name__}"]
    return []


def _cost(problem: Problem, width: int) -> Cost:
    basis, columns = problem.basis, problem.num_columns
    assert isinstance(basis, Polynomial)
    nodes = basis.size[0] * columns
    dense = 2.0 * nodes * problem.num_labels * problem.in_channels * problem.theta.size(3)
    return Cost(
        dense_flops=dense if problem.has_features else 0.0,
        sparse_flops=2.0 * basis.operator.num_edges * width * columns * (problem.num_labels - 1),
        elements=3.0 * nodes * width,
    )


Step = Callable[[Tensor], Tensor]


def _step(problem: Problem) -> Step:
    """x (N, ...) to Aᵀ x, for the operator A of a polynomial."""
    assert isinstance(problem.basis, Polynomial)
    operator = problem.basis.operator
    return lambda x: multiply(operator.pattern.by_target, operator, x)


def sum_forward(problem: Problem, step: Step) -> Tensor:
    """Σ_k (p_k(A)ᵀ X) Θ_k, with h_{k+1} = α Aᵀ h_k − γ h_{k−1} and ``step`` for Aᵀ."""
    assert isinstance(problem.basis, Polynomial)
    assert problem.x is not None  # why_not
    rule, last, here = problem.basis.recurrence, None, problem.x
    out = problem.collect_label(here, 0)
    for k in range(1, problem.num_labels):
        ahead = _times(rule.first if k == 1 else rule.alpha, step(here))
        if last is not None and rule.gamma:
            ahead = ahead - rule.gamma * last
        last, here = here, ahead
        out = out + problem.collect_label(here, k)
    return out


def sum_clenshaw(problem: Problem, step: Step) -> Tensor:
    """Σ_k p_k(A)ᵀ (X Θ_k), with b_k = X Θ_k + s_k Aᵀ b_{k+1} − γ b_{k+2}, which ends in b_0."""
    assert isinstance(problem.basis, Polynomial)
    rule = problem.basis.recurrence
    last: Tensor | None = None
    here: Tensor | None = None
    for k in reversed(range(problem.num_labels)):
        ahead = problem.transform_label(k)
        if here is not None:
            ahead = ahead + _times(rule.first if k == 0 else rule.alpha, step(here))
        if last is not None and rule.gamma:
            ahead = ahead - rule.gamma * last
        last, here = here, ahead
    assert here is not None
    return here


def _times(factor: float, x: Tensor) -> Tensor:
    return x if factor == 1.0 else factor * x


class Forward(Order):
    """p_k(A)ᵀ X in turn at width P, each times Θ_k as soon as it is there."""

    name = "recurrence_forward"

    def why_not(self, problem: Problem) -> list[str]:
        """It needs a polynomial, and features."""
        reasons = _why_not(problem)
        if not problem.has_features:
            reasons.append("needs node features, and there are none to propagate")
        return reasons

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·P sparse, N·K·P·Q dense."""
        return _cost(problem, problem.in_channels)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return sum_forward(problem, _step(problem))


class Clenshaw(Order):
    """Σ_k p_k(A)ᵀ (X Θ_k) from the last label to the first, at width Q (Horner for powers).

    Clenshaw, *A note on the summation of Chebyshev series*, 1955.
    """

    name = "recurrence_clenshaw"

    def why_not(self, problem: Problem) -> list[str]:
        """It needs a polynomial."""
        return _why_not(problem)

    def cost(self, problem: Problem) -> Cost:
        """(K − 1)·E·Q sparse, N·K·P·Q dense."""
        return _cost(problem, problem.out_channels)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return sum_clenshaw(problem, _step(problem))
