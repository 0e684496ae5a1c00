"""From a lazy basis to leaves: linear rewritings move everything but sums into Θ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..basis.algebra import Derived, Scaled, Selected, Stacked, Transposed
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.eye import Eye
from ..basis.on_demand import OnDemand
from ..basis.polynomial import Polynomial
from .mixture import Mixture, ThetaValue, gathered, labels_of, scaled


def leaves(
    basis: Basis, theta: ThetaValue, reduce: str = "sum"
) -> Iterator[tuple[Basis, ThetaValue]]:
    """Pairs (leaf, Θ of the leaf) with Σ over leaves Σ_k A_k ⊗ Θ_k equal to the whole.

    - a stack splits Θ by label;
    - a scale multiplies Θ_k by c_k, which costs less than scaling edges, but for max and min, which
      a negative c_k turns into each other: there it multiplies the values of edges;
    - a selection adds Θ_k to the label it chose (zero for labels not chosen, and of a polynomial
      only the powers up to the highest chosen one);
    - a transposition moves inward until it meets edges.

    Args:
        basis: any basis.
        theta: (K, G, P/G, Q/G), or a mixture.
        reduce: over the inputs of each label.
    """
    if isinstance(basis, Stacked):
        start = 0
        for part in basis.parts:
            end = start + part.num_bases
            yield from leaves(part, labels_of(theta, start, end), reduce)
            start = end
    elif isinstance(basis, Scaled) and not (reduce in ("max", "min") and _has_edges(basis.base)):
        yield from leaves(basis.base, scaled(theta, basis.factor.to(_rows(theta).dtype)), reduce)
    elif isinstance(basis, Scaled) and isinstance(basis.base, Stacked):
        yield from leaves(_split(basis.base, basis.factor), theta, reduce)
    elif isinstance(basis, Selected) and not isinstance(basis.base, EdgeBasis):
        base = basis.base
        if isinstance(base, Polynomial):  # powers past the highest chosen one are not needed
            base = Polynomial(base.operator, base.recurrence, max(basis.labels) + 1)
        label = torch.tensor(basis.labels, device=_rows(theta).device)
        yield from leaves(base, gathered(theta, label, base.num_bases), reduce)
    elif isinstance(basis, Transposed):
        yield from leaves(_turn(basis.base), theta, reduce)
    elif isinstance(basis, EdgeBasis | Polynomial | Eye | OnDemand):
        yield basis, theta
    else:
        yield basis.edges(), theta


def _rows(theta: ThetaValue) -> Tensor:
    """A tensor with a row for each label."""
    return theta.coefficient if isinstance(theta, Mixture) else theta


def _has_edges(basis: Basis) -> bool:
    """Whether it becomes explicit edges alone: then a scale may go into their values.

    The identity has one entry a row, which no scale reorders; polynomials refuse max and min.
    """
    if isinstance(basis, Stacked):
        return any(_has_edges(part) for part in basis.parts)
    if isinstance(basis, Derived):
        return _has_edges(basis.base)
    return not isinstance(basis, Polynomial | Eye)


def _split(stack: Stacked, factor: Tensor) -> Stacked:
    """The stack with its scale in each of its parts."""
    factors = factor.split([part.num_bases for part in stack.parts])
    return Stacked(tuple(map(Scaled, stack.parts, factors)))


def _turn(basis: Basis) -> Basis:
    """The transpose of ``basis``, one level further in."""
    if isinstance(basis, Transposed):
        return basis.base
    if isinstance(basis, Stacked):
        return Stacked(tuple(Transposed(part) for part in basis.parts))
    if isinstance(basis, Scaled):
        return Scaled(Transposed(basis.base), basis.factor)
    if isinstance(basis, Selected):
        return Selected(Transposed(basis.base), basis.labels)
    if isinstance(basis, Polynomial):
        turned = basis.operator.transposed_edges()
        return Polynomial(turned, basis.recurrence, basis.num_terms)
    if isinstance(basis, Eye):
        return Eye(basis.size[::-1], basis.device)
    return basis.edges().transposed_edges()
