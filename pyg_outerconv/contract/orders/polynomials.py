"""Orders of polynomials p_k(A) by their recurrence: K − 1 sparse products, no powers of A.

If Θ mixes few matrices V_b, Σ_k p_k(A) c_kb is one polynomial for each V_b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from ...basis.channel_polynomial import ChannelPolynomial
from ...basis.polynomial import Polynomial, Step, combined, step_of
from ...theta import Theta, ThetaOfChannels
from ..cost import Cost, Steps, dense_product, moving, sparse_product, transform
from ..heads import needs_batch
from ..order import Order, Pair, needs_features, needs_matrices, needs_mixture
from ..problem import Problem
from ..rule import has_few, transforms


def _needs_channels(problem: Problem) -> list[str]:
    """A reason if Θ is not of channels."""
    if isinstance(problem.parameter, ThetaOfChannels):
        return []
    return ["needs Θ of channels, one matrix and filters of its channels"]


def _step(problem: Problem) -> Step:
    """The function H ↦ s Aᵀ H, by sparse products."""
    return problem.of(Polynomial).step(problem.dtype)


def sum_forward(problem: Problem, step: Step) -> Tensor:
    """Σ_k (p_k(A)ᵀ X) Θ_k + b, term by term."""
    out = problem.bias
    for k, h in enumerate(problem.of(Polynomial).terms(problem.features, step)):
        out = problem.parameter.labels(k, k + 1).combine(h, h.size(0), out)
    assert out is not None  # a polynomial has a term
    return out


def sum_clenshaw(
    problem: Problem, step: Step, term: Callable[[int], Tensor] | None = None
) -> Tensor:
    """Σ_k p_k(A)ᵀ z_k as b_0 of b_k = z_k + (α_k Aᵀ + β_k) b_{k+1} − γ_{k+1} b_{k+2}.

    ``term(i)`` returns z_k for the i-th label; without it, z_k = X Θ_k. Other z_k are left out.
    """
    basis, term = problem.of(Polynomial), term or problem.transform_label
    rule, number = basis.recurrence, {k: i for i, k in enumerate(basis.labels)}
    last: Tensor | None = None
    here: Tensor | None = None
    for k in reversed(range(basis.num_terms)):
        ahead = term(number[k]) if k in number else None
        if here is not None:
            alpha, beta, _ = rule.factors(k + 1)
            moved = step(here, alpha)
            ahead = moved if ahead is None else ahead + moved
            gamma = 0.0 if last is None else rule.factors(k + 2)[2]
            ahead = combined(ahead, here, last, beta, gamma)
        assert ahead is not None  # the last term is a label
        last, here = here, ahead
    assert here is not None
    return here


class RecurrenceOrder(Order):
    """Σ_k p_k(A)ᵀ X Θ_k by K − 1 sparse products.

    A first makes the terms p_k(A)ᵀ X in turn at width P, each multiplied by Θ_k at once. Θ first
    makes sums from the last label to the first, at width Q (Horner for powers; Clenshaw, *A note on
    the summation of Chebyshev series*, 1955).

    Attributes:
        mixed: whether Θ mixes few matrices.
    """

    pair: ClassVar[Pair] = {
        "recurrence_clenshaw": {"theta_first": True},
        "recurrence_forward": {
            "propagates": True,
            "adds_bias": True,
            "needs": (needs_features,),
        },
    }
    solves = (Polynomial,)
    knows_shapes = True
    mixed: ClassVar[bool] = False

    def rank(self, problem: Problem) -> int:
        """0 if the plain rule chooses it, else 1; filters of channels follow one matrix."""
        if problem.parameter.has_filters:
            return int(not (self.theta_first and self.mixed))
        plain = (
            bool(transforms(problem)),
            bool(has_few(problem)),
        )  # torch.jit traces them as tensors
        return int(plain != (self.theta_first, self.mixed))

    def _recurring(
        self, problem: Problem, products: Cost, wanted: bool, keeps: bool, beside: int = 0
    ) -> Steps:
        """A sparse product for each step, and dense ``products``.

        ``wanted``: the first term requires gradients; ``keeps``: autograd saves all terms, of which
        three are in memory otherwise; ``beside``: number of further tensors of the size of a term.
        """
        basis, width = problem.of(Polynomial), self._width(problem)
        nodes, steps = basis.size[0], basis.num_terms - 1
        entries = float(basis.operator.num_edges)
        sparse = sparse_product(problem, width, (nodes, nodes), wanted, entries).forward
        line = _line(problem, width)
        step = sparse + moving(line, line, line)
        # A is square: transposed products, and samples for the gradient of values, cost the same.
        of_basis = problem.gradients[2]
        transposed = steps if wanted else max(steps - 1, 0) * of_basis
        factors = {basis.recurrence.factors(k)[0] for k in range(1, basis.num_terms)} - {1.0}
        memory = line * ((steps + 2 if keeps else 3) + beside)
        memory += (len(factors) if of_basis else bool(factors)) * entries * problem.itemsize
        terms = Cost(step * steps, step * transposed + sparse * (steps * of_basis), memory)
        return Steps(problem).add(f"{steps} times Aᵀ", terms).add("products with Θ", products)

    def _width(self, problem: Problem) -> int:
        return problem.out_channels if self.theta_first else problem.in_channels

    def steps(self, problem: Problem) -> Steps:
        """(K − 1)·E·P or (K − 1)·E·Q sparse, N·K·P·Q dense."""
        of_x, of_theta, of_basis = problem.gradients
        rows = float(problem.basis.size[0] * problem.num_columns)
        if self.theta_first:
            products = transform(problem, rows * problem.num_labels)
            return self._recurring(problem, products, of_x or of_theta, of_basis)
        first = int(problem.of(Polynomial).labels[0] == 0)  # X itself; A makes all later terms
        later = problem.num_labels - first
        products = dense_product(problem, rows * first, of_x, first)
        products += dense_product(problem, rows * later, of_x or of_basis, later)
        return self._recurring(problem, products, of_x, of_theta or of_basis)

    def run(self, problem: Problem) -> Tensor:
        if self.theta_first:  # X Θ_k may have another type under autocast, so each step asks
            return sum_clenshaw(problem, _step(problem))
        return sum_forward(problem, problem.of(Polynomial).step(problem.dtype, problem.few))


class ChannelRecurrence(Order):
    """Filters of channels, each of a recurrence of its own: K − 1 sparse products at width Q.

    Where the terms of X W are known, as those of a basis that was made of X W, they are added up.
    """

    name = "channel_recurrence"
    theta_first = True
    solves = (ChannelPolynomial,)
    needs = (_needs_channels, needs_batch)
    knows_shapes = True

    def steps(self, problem: Problem) -> Steps:
        """N·P·Q dense, (K − 1)·E·Q sparse, some sums of N·Q."""
        basis, line = problem.of(ChannelPolynomial), _line(problem, problem.out_channels)
        nodes, terms = basis.size[0], basis.num_terms
        of_x, of_theta, of_basis = problem.gradients
        wanted = of_x or of_theta or of_basis
        steps = Steps(problem)
        steps.add("X W", transform(_of_weight(problem), float(nodes * problem.num_columns)))
        size = nodes, nodes
        entries = float(basis.operator.num_edges)
        step = sparse_product(problem, problem.out_channels, size, wanted, entries).forward
        each = step + moving(*[line] * 6)
        memory = line * (terms + 2 if wanted else 4)
        steps.add(
            f"{terms - 1} times Aᵀ", Cost(each * (terms - 1), each * (terms - 1) * wanted, memory)
        )
        return steps

    def run(self, problem: Problem) -> Tensor:
        theta = problem.parameter
        assert isinstance(theta, ThetaOfChannels)
        basis = problem.of(ChannelPolynomial)
        terms = basis.terms_known(problem.x, theta.weight)
        if terms is not None:
            out = terms[0] * theta.filters[0].to(terms[0].dtype)
            for term, c in zip(terms[1:], theta.filters[1:], strict=True):
                out = torch.addcmul(out, term, c.to(term.dtype))
            return out
        return sum_channels(problem, step_of(basis.operator, problem.dtype))


def _of_weight(problem: Problem) -> Problem:
    """The problem with W as Θ."""
    assert isinstance(problem.parameter, ThetaOfChannels)
    return Problem(problem.basis, problem.x, Theta(problem.parameter.weight.unsqueeze(0)))


def sum_channels(problem: Problem, step: Step) -> Tensor:
    """Σ_k c_kq p_{k,q}(A)ᵀ (X W)_q for each channel q."""
    theta = problem.parameter
    assert isinstance(theta, ThetaOfChannels)
    z = _of_weight(problem).transform().squeeze(1)
    return problem.of(ChannelPolynomial).filtered(z, theta.filters, step)


def _line(problem: Problem, width: int) -> float:
    """Bytes of a term."""
    return float(problem.basis.size[0] * problem.num_columns * width * problem.itemsize)


# Mixtures ----------------------------------------------------------------------------------------


def _coefficient(problem: Problem) -> Tensor:
    """c (K, B), or (K, B, Q)."""
    assert problem.parameter.coefficient is not None  # these orders need a mixture
    return problem.parameter.coefficient


def _of_matrices(problem: Problem) -> Problem:
    """The problem with the matrices V_b as Θ."""
    return Problem(problem.basis, problem.x, Theta(problem.parameter.inner))


def _is_free(problem: Problem) -> bool:
    """Whether products with V_b can be skipped: V = I, and X is dense."""
    return problem.parameter.is_unit and problem.has_features


class MixedRecurrence(RecurrenceOrder):
    """Orders for Θ_k = Σ_b c_kb V_b: B dense products, not K; none if V = I.

    A first sums terms at width P at once, Σ_b (Σ_k c_kb p_k(A)ᵀ X) V_b. Θ first computes each X V_b
    once, instead of X Θ_k for each label, and sums from the last label to the first, at width Q; so
    c_kb may be a number for each of the Q channels.
    """

    pair: ClassVar[Pair] = {
        "recurrence_clenshaw_mixed": {"theta_first": True, "needs": (needs_matrices,)},
        "recurrence_forward_mixed": {"needs": (needs_mixture, needs_features)},
    }
    mixed = True

    def steps(self, problem: Problem) -> Steps:
        """(K − 1)·E sparse, N·B·P·Q dense, K·B·N sums, at width P or Q."""
        of_x, of_theta, of_basis = problem.gradients
        count, products = problem.parameter.num_matrices, Cost.of()
        rows = float(problem.basis.size[0] * problem.num_columns * count)
        of_c = _coefficient(problem).requires_grad and torch.is_grad_enabled()
        keeps = of_basis or (of_c and not self.theta_first)
        wanted = of_x or (of_theta if self.theta_first else keeps)
        if not _is_free(problem) and self.theta_first:
            products = transform(_of_matrices(problem), rows)
        elif not _is_free(problem):
            products = dense_product(_of_matrices(problem), rows, wanted)
        # The cost of a dense product does not count that its result is written. For a fair
        # comparison only the terms of sums after the first count here.
        line = _line(problem, self._width(problem))
        products += Cost.of(moving(*[line] * (count - 1)) * problem.num_labels, wanted)
        first = wanted if self.theta_first else of_x
        return self._recurring(problem, products, first, keeps, count)

    def run(self, problem: Problem) -> Tensor:
        coefficient = _coefficient(problem)
        if self.theta_first:
            if _is_free(problem):
                z = problem.features.unsqueeze(1)
            else:
                z = _of_matrices(problem).transform()  # (M, B, *batch, Q)
            coefficient = coefficient.to(z.dtype)

            def term(k: int) -> Tensor:
                total = z[:, 0] * coefficient[k, 0]
                for b in range(1, z.size(1)):
                    total = torch.addcmul(total, z[:, b], coefficient[k, b])
                return total

            return sum_clenshaw(problem, _step(problem), term)
        total: Tensor | None = None  # (N, B, *batch, P)
        x = problem.features.contiguous()  # of whose strides the sum is, too
        for k, h in enumerate(problem.of(Polynomial).terms(x, _step(problem))):
            weight = coefficient[k].to(h.dtype).view(-1, *[1] * (h.dim() - 1))
            h = h.unsqueeze(1)
            total = h * weight if total is None else torch.addcmul(total, h, weight)
        assert total is not None  # a polynomial has a term
        return total.squeeze(1) if _is_free(problem) else _of_matrices(problem).collect(total)
