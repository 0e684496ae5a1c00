"""A_kᵀ X for every label of any basis, without Θ: what a product of bases passes on."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..basis.algebra import (
    Composed,
    Kronecker,
    Mixed,
    Repeated,
    Restricted,
    Scaled,
    Selected,
    Stacked,
    Transposed,
)
from ..basis.attended import Attended
from ..basis.base import Basis
from ..basis.eye import Eye
from ..basis.heads import Heads
from ..basis.polynomial import Polynomial
from ..errors import RefusedValue
from .cost import Cost
from .nested import stand_in, together
from .order import Order, multiply
from .orders.attend import AttendPropagateFirst
from .orders.heads import HeadsPropagateFirst
from .orders.propagate_first import PropagateFirst
from .orders.recurrence import Forward, powers, step_of
from .problem import Problem
from .rewrite import leaves, turn


def propagated(basis: Basis, x: Tensor) -> Tensor:
    """H_k = A_kᵀ X for X (M, *batch, P): (N, K, *batch, P)."""
    if isinstance(basis, Stacked):
        return torch.cat([propagated(part, x) for part in basis.parts], dim=1)
    if isinstance(basis, Scaled):
        factor = basis.factor.to(x.dtype)
        return propagated(basis.base, x) * factor.view(-1, *(1,) * (x.dim() - 1))
    if isinstance(basis, Mixed):
        h = propagated(basis.base, x)
        return torch.tensordot(basis.matrix.to(x.dtype), h, dims=([1], [1])).movedim(0, 1)
    if isinstance(basis, Selected):
        return propagated(basis.base, x)[:, list(basis.labels)]
    if isinstance(basis, Transposed):
        return propagated(turn(basis.base), x)
    if isinstance(basis, Composed):
        h = propagated(basis.second, propagated(basis.first, x))  # (N, K₂, K₁, *batch, P)
        return h.transpose(1, 2).flatten(1, 2)
    if isinstance(basis, Kronecker):
        return propagated(basis.chain(), x)
    if isinstance(basis, Restricted):
        return propagated(basis.product, x)
    if isinstance(basis, Repeated):
        copies = x.unflatten(0, (basis.before, basis.base.size[0], basis.after)).movedim(1, 0)
        h = propagated(basis.base, copies)  # (N, K, before, after, *batch, P)
        return h.permute(2, 0, 3, 1, *range(4, h.dim())).flatten(0, 2)
    if isinstance(basis, Polynomial):
        problem = _of_no_width(basis, x)
        return torch.stack(list(powers(problem, step_of(problem))), dim=1)
    if isinstance(basis, Eye):
        kept = x[: basis.size[1]].unsqueeze(1)
        missing = basis.size[1] - kept.size(0)
        return F.pad(kept, (0, 0) * (kept.dim() - 1) + (0, missing)) if missing else kept
    if isinstance(basis, Heads | Attended):
        problem = _of_no_width(basis, x)
        return _of_heads(problem).received(problem).movedim(-2, 1)
    edges = basis.edges()
    h = multiply(edges.pattern.by_target_label, edges, x)
    return h.unflatten(0, (edges.size[1], edges.num_bases))


def propagating(basis: Basis, x: Tensor) -> Cost:
    """What :func:`propagated` would cost: sparse products of width P, and no dense one."""
    total = Cost()
    theta = stand_in((basis.num_bases, 1, x.size(-1), 0), x, False)
    for leaf, _ in leaves(basis, theta):
        if isinstance(leaf, Composed):
            first = propagating(leaf.first, x)
            learns = x.requires_grad or leaf.first.learns
            shape = (leaf.first.size[1], leaf.first.num_bases, *x.shape[1:])
            cost = together(first, propagating(leaf.second, stand_in(shape, x, learns)))
        elif isinstance(leaf, Repeated):
            shape = (leaf.base.size[0], leaf.before, leaf.after, *x.shape[1:])
            cost = propagating(leaf.base, stand_in(shape, x, x.requires_grad))
        elif isinstance(leaf, Eye):
            cost = Cost()
        else:
            cost = _order_of(problem := _of_no_width(leaf, x)).cost(problem)
        total = together(total, cost)
    return total


def _order_of(problem: Problem) -> Order:
    """What propagates along a leaf that has edges."""
    if isinstance(problem.basis, Polynomial):
        return Forward()
    return _of_heads(problem) if isinstance(problem.basis, Heads | Attended) else PropagateFirst()


def _of_heads(problem: Problem) -> AttendPropagateFirst | HeadsPropagateFirst:
    """Attention in one primitive, where it may."""
    fused, spelled = AttendPropagateFirst(), HeadsPropagateFirst()
    if not fused.why_not(problem):
        return fused
    if reasons := spelled.why_not(problem):
        raise RefusedValue(f"features cannot be propagated by {problem.basis}: {reasons[0]}")
    return spelled


def _of_no_width(basis: Basis, x: Tensor) -> Problem:
    """The problem with Q = 0, of which propagation is all."""
    return Problem(basis, x, stand_in((basis.num_bases, 1, x.size(-1), 0), x, False))
