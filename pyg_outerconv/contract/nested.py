"""Contractions over the factors of a basis, which orders of products and copies are made of."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedValue
from ..graph.sparse_features import Features
from ..theta import ThetaValue, as_theta
from .choose import choose_order
from .cost import Cost
from .order import orders_of
from .problem import Problem


def solve(basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """Σ_k A_kᵀ X Θ_k, each leaf by the order chosen for it; the result may be a view of Θ."""
    out: Tensor | None = None
    for leaf, part in basis.absorb(as_theta(theta)):
        problem = Problem(leaf, x, part)
        found = choose_order(problem).run(problem)
        out = found if out is None else out + found
    assert out is not None  # a basis has at least one leaf
    return out


def solving(basis: Basis, x: Features, theta: ThetaValue) -> Cost:
    """The cost of :func:`solve`."""
    parts = basis.absorb(as_theta(theta))
    return together(*(_cost(Problem(leaf, x, part)) for leaf, part in parts))


def _cost(problem: Problem) -> Cost:
    return choose_order(problem).cost(problem)


def together(*costs: Cost) -> Cost:
    """The cost of several steps in turn: work and memory add up."""
    total = Cost()
    for cost in costs:
        total = Cost(
            total.forward + cost.forward,
            total.backward + cost.backward,
            total.memory + cost.memory,
        )
    return total


def transformed(z: Tensor) -> Tensor:
    """Z (M, K, *batch, Q) as Θ (K, 1, M, *batch·Q), so that X Θ_k = Z_k for X = I.

    Orders that transform first then compute Σ_k A_kᵀ Z_k; their first product is a view of Z.
    """
    return z.movedim(1, 0).flatten(2).unsqueeze(1)


def solve_transformed(basis: Basis, z: Tensor) -> Tensor:
    """Σ_k A_kᵀ Z_k for Z (M, K, *batch, Q): (N, *batch, Q)."""
    return solve(basis, None, transformed(z)).view(basis.size[1], *z.shape[2:])


def solving_transformed(basis: Basis, shape: tuple[int, ...], like: Tensor, learns: bool) -> Cost:
    """The cost of :func:`solve_transformed` for Z of a shape; ``learns``: Z requires gradients.

    Θ has one number for each label while it is moved through the basis, and is expanded after.
    """
    sources, num_labels, *rest = shape
    narrow = as_theta(stand_in((num_labels, 1, 1, 1), like, learns))
    wide = (-1, 1, sources, prod(rest))
    parts = basis.absorb(narrow)
    return together(*(_cost(Problem(leaf, None, part.expanded(wide))) for leaf, part in parts))


def stand_in(shape: tuple[int, ...], like: Tensor, learns: bool) -> Tensor:
    """A tensor of a shape that allocates a single number, for costs that depend on shapes alone."""
    with torch._C._DisableFuncTorch():
        wanted = learns and torch.is_grad_enabled()
        one = torch.zeros(
            (1,) * len(shape), dtype=like.dtype, device=like.device, requires_grad=wanted
        )
        return one.expand(shape)


def propagating(basis: Basis, x: Tensor) -> Cost:
    """The cost of ``basis.propagate(x)``: sparse products of width P, and no dense product."""
    parts = basis.products(tuple(x.shape), x.requires_grad)
    return together(*(_product(part, stand_in(shape, x, learns)) for part, shape, learns in parts))


def _product(basis: Basis, x: Tensor) -> Cost:
    """The cost of A_kᵀ X for all labels of one leaf, as that of a contraction with Q = 0."""
    nothing = as_theta(stand_in((basis.num_bases, 1, x.size(-1), 0), x, False))
    problem, reasons = Problem(basis, x, nothing), []
    for order in orders_of(type(basis)):
        if not order.propagates:
            continue
        if not (why := order.why_not(problem)):
            return order.cost(problem)
        reasons += why
    raise RefusedValue(f"features cannot be propagated by {basis}: {'; '.join(reasons)}")
