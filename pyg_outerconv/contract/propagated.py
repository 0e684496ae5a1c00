"""What it costs to propagate features, A_kᵀ X for every label of any basis, without Θ."""

from __future__ import annotations

from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedValue
from ..theta import as_theta
from .cost import Cost
from .nested import stand_in, together
from .order import orders_of
from .problem import Problem


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
