"""Contractions within contractions: what orders solve that take a basis apart into factors."""

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
    """Σ_k A_kᵀ X Θ_k, each leaf by its cheapest order; perhaps in memory of Θ."""
    out: Tensor | None = None
    for leaf, part in basis.absorb(as_theta(theta)):
        problem = Problem(leaf, x, part)
        found = choose_order(problem).run(problem)
        out = found if out is None else out + found
    assert out is not None  # a basis has a leaf
    return out


def solving(basis: Basis, x: Features, theta: ThetaValue) -> Cost:
    """What :func:`solve` would cost."""
    parts = basis.absorb(as_theta(theta))
    return together(*(_cheapest(Problem(leaf, x, part)) for leaf, part in parts))


def _cheapest(problem: Problem) -> Cost:
    return choose_order(problem).cost(problem)


def together(*costs: Cost) -> Cost:
    """The cost of one after the other, with all held that any holds."""
    total = Cost()
    for cost in costs:
        total = Cost(
            total.forward + cost.forward,
            total.backward + cost.backward,
            total.memory + cost.memory,
        )
    return total


def transformed(z: Tensor) -> Tensor:
    """Θ (K, 1, M, *batch·Q) that makes Z_k (M, K, *batch, Q) of X = I: Σ_k A_kᵀ Z_k needs no other.

    All orders that transform first then run as they are: their first product is a view.
    """
    return z.movedim(1, 0).flatten(2).unsqueeze(1)


def solve_transformed(basis: Basis, z: Tensor) -> Tensor:
    """Σ_k A_kᵀ Z_k for Z (M, K, *batch, Q): (N, *batch, Q)."""
    return solve(basis, None, transformed(z)).view(basis.size[1], *z.shape[2:])


def solving_transformed(basis: Basis, shape: tuple[int, ...], like: Tensor, learns: bool) -> Cost:
    """What :func:`solve_transformed` would cost for Z of this shape, which ``learns`` or not.

    What rewriting computes with Θ it computes with one number for each label here.
    """
    sources, num_labels, *rest = shape
    narrow = as_theta(stand_in((num_labels, 1, 1, 1), like, learns))
    wide = (-1, 1, sources, prod(rest))
    parts = basis.absorb(narrow)
    return together(*(_cheapest(Problem(leaf, None, part.expanded(wide))) for leaf, part in parts))


def stand_in(shape: tuple[int, ...], like: Tensor, learns: bool) -> Tensor:
    """A tensor of a shape that takes no memory, to ask what it would cost."""
    with torch._C._DisableFuncTorch():
        wanted = learns and torch.is_grad_enabled()
        one = torch.zeros(
            (1,) * len(shape), dtype=like.dtype, device=like.device, requires_grad=wanted
        )
        return one.expand(shape)


def propagating(basis: Basis, x: Tensor) -> Cost:
    """What ``basis.propagate(x)`` would cost: sparse products of width P, and no dense one."""
    parts = basis.products(tuple(x.shape), x.requires_grad)
    return together(*(_one(part, stand_in(shape, x, learns)) for part, shape, learns in parts))


def _one(basis: Basis, x: Tensor) -> Cost:
    nothing = as_theta(stand_in((basis.num_bases, 1, x.size(-1), 0), x, False))
    problem, reasons = Problem(basis, x, nothing), []
    for order in orders_of(type(basis)):
        if not order.propagates:
            continue
        if not (why := order.why_not(problem)):
            return order.cost(problem)
        reasons += why
    raise RefusedValue(f"features cannot be propagated by {basis}: {'; '.join(reasons)}")
