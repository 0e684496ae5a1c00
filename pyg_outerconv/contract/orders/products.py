"""Orders of products of bases: compositions factor by factor, disjoint copies as a batch."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from ...basis.algebra import Mixed, Stacked
from ...basis.base import Basis
from ...basis.eye import Eye
from ...basis.products import Composed, Repeated
from ...errors import RefusedValue
from ...graph.sparse_matrix import Features
from ...theta import ThetaValue, as_theta
from ..cost import Cost, Steps
from ..order import Order, Pair, needs_features, orders_of
from ..plan import choose_order
from ..problem import Problem


def _narrows(problem: Problem) -> bool:
    """Whether K₂·Q ≤ K₁·P: z has at most as many channels as H."""
    factors = problem.of(Composed)
    ours, theirs = factors.first.num_bases, factors.second.num_bases
    return theirs * problem.out_channels <= ours * problem.in_channels


def _needs_shared_values(problem: Problem) -> list[str]:
    """A reason if the second factor has values for each item of a batch, which here are columns."""
    batch = problem.of(Composed).second.batch
    return [f"the second factor has batch shape {batch}, and Θ has none"] if batch else []


class Chain(Order):
    """Σ_ij B_jᵀ A_iᵀ X Θ_ij, factor by factor.

    Θ first is z_j = Σ_i A_iᵀ X Θ_ij at width K₂·Q by one contraction over A, then Σ_j B_jᵀ z_j. A
    first is H_i = A_iᵀ X for all i, then one contraction over B of K₁·P channels with Θ.
    """

    pair: ClassVar[Pair] = {
        "chain_transform": {"theta_first": True, "needs": (_needs_shared_values,)},
        "chain_propagate": {"needs": (needs_features,)},
    }
    solves = (Composed,)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether it is the narrower order: torch.compile takes it without comparing costs."""
        return self.theta_first == (not problem.has_features or _narrows(problem))

    def steps(self, problem: Problem) -> Steps:
        """Both contractions, and L·K₂·Q or L·K₁·P numbers between them."""
        (first, second), theta = problem.of(Composed).parts, self._theta(problem)
        (of_x, of_theta, _), steps = problem.gradients, Steps(problem)
        if self.theta_first:
            learns = of_x or of_theta or first.learns
            shape = (first.size[1], second.num_bases, *problem.batch, problem.out_channels)
            steps.add("the first factor", _solving(first, problem.x, theta))
            last = _solving_transformed(second, shape, theta, learns)
        else:
            x, learns = problem.features, of_x or first.learns
            shape = (first.size[1], *problem.batch, first.num_bases * problem.in_channels)
            steps.add("the first factor", _propagating(first, x))
            last = _solving(second, _stand_in(shape, x, learns), theta)
        steps.learns = any(problem.gradients)
        return steps.hold(float(prod(shape))).add("the second factor", last)

    def run(self, problem: Problem) -> Tensor:
        (first, second), theta = problem.of(Composed).parts, self._theta(problem)
        if self.theta_first:
            z = _solve(first, problem.x, theta)  # (L, *batch, G·K₂·Q/G)
            sizes = problem.num_blocks, second.num_bases, problem.parameter.shape[3]
            return _solve_transformed(second, z.unflatten(-1, sizes).movedim(-2, 1).flatten(-2))
        h = first.propagate(problem.features)  # (L, K₁, *batch, P)
        blocks = h.movedim(1, -2)
        if problem.num_blocks > 1:  # channels of one block of Θ must be contiguous
            blocks = blocks.unflatten(-1, (problem.num_blocks, -1)).transpose(-3, -2).flatten(-2)
        return _solve(second, blocks.flatten(-2), theta)

    def _theta(self, problem: Problem) -> Tensor:
        """Θ for the first factor (K₁, G, P/G, K₂·Q/G), or the second (K₂, G, K₁·P/G, Q/G)."""
        first, second = problem.of(Composed).parts
        pairs = problem.theta.unflatten(0, (first.num_bases, second.num_bases))
        if self.theta_first:
            return pairs.permute(0, 2, 3, 1, 4).flatten(3)
        return pairs.permute(1, 2, 0, 3, 4).flatten(2, 3)


class PerCopy(Order):
    """I ⊠ A_k ⊠ I as the contraction over A_k of a batch with one item for each copy."""

    name = "per_copy"
    solves = (Repeated,)

    def steps(self, problem: Problem) -> Steps:
        """The contraction of the batch; without dense features, Θ first for all copies."""
        copies, steps = problem.of(Repeated), Steps(problem)
        shape = (copies.before, copies.after, *problem.batch)
        if problem.has_features:
            x = problem.features
            batch = _stand_in((copies.base.size[0], *shape, x.size(-1)), x, problem.gradients[0])
            return steps.add("all copies", _solving(copies.base, batch, problem.parameter))
        steps.transform(float(copies.size[0] * problem.num_labels))
        like = torch.empty(0, dtype=problem.dtype, device=problem.device)
        z = (copies.base.size[0], problem.num_labels, *shape, problem.out_channels)
        return steps.add("all copies", _solving_transformed(copies.base, z, like, steps.learns))

    def run(self, problem: Problem) -> Tensor:
        copies = problem.of(Repeated)
        shape = (copies.before, copies.base.size[0], copies.after)
        if problem.has_features:
            x = problem.features.unflatten(0, shape).movedim(1, 0)
            out = _solve(copies.base, x, problem.parameter)
        else:
            z = problem.transform().unflatten(0, shape).movedim((1, 3), (0, 1))
            out = _solve_transformed(copies.base, z)
        return out.movedim(0, 1).flatten(0, 2)


# Contractions over a factor -----------------------------------------------------------------------


def _solve(basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """Σ_k A_kᵀ X Θ_k, each leaf by the order chosen for it; the result may be a view of Θ."""
    out: Tensor | None = None
    for leaf, part in basis.absorb(as_theta(theta)):
        problem = Problem(leaf, x, part)
        summand = choose_order(problem).run(problem)
        out = summand if out is None else out + summand
    assert out is not None  # a basis has at least one leaf
    return out


def _solving(basis: Basis, x: Features, theta: ThetaValue) -> Cost:
    """The cost of :func:`_solve`."""
    return _total(Problem(leaf, x, part) for leaf, part in basis.absorb(as_theta(theta)))


def _total(problems: Iterable[Problem]) -> Cost:
    costs = (choose_order(problem).cost(problem) for problem in problems)
    return sum(costs, Cost.of())


def _solve_transformed(basis: Basis, z: Tensor) -> Tensor:
    """Σ_k A_kᵀ Z_k for Z (M, K, *batch, Q): (N, *batch, Q).

    Z is Θ (K, 1, M, *batch·Q), so that X Θ_k = Z_k for X = I. Orders that transform first then
    compute Σ_k A_kᵀ Z_k; their first product is a view of Z.
    """
    theta = z.movedim(1, 0).flatten(2).unsqueeze(1)
    return _solve(basis, None, theta).view(basis.size[1], *z.shape[2:])


def _solving_transformed(basis: Basis, shape: tuple[int, ...], like: Tensor, learns: bool) -> Cost:
    """The cost of :func:`_solve_transformed` for Z of a shape; ``learns``: Z requires gradients.

    Θ has one number for each label while it is moved through the basis, and is expanded after.
    """
    sources, num_labels, *rest = shape
    narrow = as_theta(_stand_in((num_labels, 1, 1, 1), like, learns))
    wide = (-1, 1, sources, prod(rest))
    return _total(Problem(leaf, None, part.expanded(wide)) for leaf, part in basis.absorb(narrow))


def _stand_in(shape: tuple[int, ...], like: Tensor, learns: bool) -> Tensor:
    """A tensor of a shape that allocates a single number, for costs that depend on shapes alone."""
    with torch._C._DisableFuncTorch():
        wanted = learns and torch.is_grad_enabled()
        # Not like.new_zeros: torch.func may wrap it.
        one = torch.zeros((), dtype=like.dtype, device=like.device, requires_grad=wanted)
        return one.expand(shape)


Product = tuple[Basis, tuple[int, ...], bool]
"""A basis, the shape of what it is multiplied with, and whether that requires gradients."""


def sparse_products(basis: Basis, shape: tuple[int, ...], learns: bool) -> list[Product]:
    """What ``basis.propagate`` multiplies for X of a shape; ``learns``: X requires gradients."""
    if isinstance(basis, Eye):
        return []
    if isinstance(basis, Stacked | Mixed):
        return [one for part in basis.parts for one in sparse_products(part, shape, learns)]
    if isinstance(basis, Repeated):
        copies = basis.before, basis.after
        return sparse_products(basis.base, (basis.base.size[0], *copies, *shape[1:]), learns)
    if isinstance(basis, Composed):
        first, second = basis.parts
        between = (first.size[1], first.num_bases, *shape[1:])
        then = sparse_products(second, between, learns or first.learns)
        return [*sparse_products(first, shape, learns), *then]
    if basis.is_leaf:
        return [(basis, shape, learns)]
    return sparse_products(basis.simpler(), shape, learns)


def _propagating(basis: Basis, x: Tensor) -> Cost:
    """The cost of ``basis.propagate(x)``: that of contractions with Q = 0."""
    total = Cost.of()
    for leaf, shape, learns in sparse_products(basis, tuple(x.shape), x.requires_grad):
        nothing = as_theta(_stand_in((leaf.num_bases, 1, shape[-1], 0), x, False))
        problem, reasons = Problem(leaf, _stand_in(shape, x, learns), nothing), []
        for order in filter(lambda order: order.propagates, orders_of(type(leaf))):
            why = order.why_not(problem)
            if not why:
                total += order.cost(problem)
                break
            reasons += why
        else:
            why = reasons or [f"no order with propagates=True solves a {type(leaf).__name__}"]
            raise RefusedValue(f"features cannot be propagated by {leaf}: {'; '.join(why)}")
    return total
